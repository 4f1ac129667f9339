// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
//
// Which segment passes the edge of an age bucket next? All of them pass the same edges
// at the same ages, so those that wait for one edge wait in the order of their birth:
// a queue for each edge, and constant time for everything. A segment waits for one edge
// at most; it can leave at any time, so nothing stale piles up.
#pragma once

#include <array>
#include <vector>

#include "../../types.h"
#include "hazard_model.h"

namespace eviction::gittins {

class AgeTimers {
 public:
  static constexpr std::uint32_t kNone = 0xffffffffu;

  explicit AgeTimers(std::uint32_t capacity) : links_(capacity) { clear(); }

  std::size_t bytes() const { return links_.size() * sizeof(Link); }
  // The one that waits longest for this edge, or kNone.
  std::uint32_t first(int edge) const { return queues_[edge].first; }
  bool waits(std::uint32_t id) const { return links_[id].edge != kIdle; }

  // It must not wait yet, and be the youngest of those that wait for the edge.
  void start(std::uint32_t id, int edge) {
    Queue& queue = queues_[edge];
    links_[id] = {queue.last, kNone, static_cast<std::int32_t>(edge)};
    (queue.last == kNone ? queue.first : links_[queue.last].next) = id;
    queue.last = id;
  }
  void stop(std::uint32_t id) {
    const Link link = links_[id];
    if (link.edge == kIdle) return;
    Queue& queue = queues_[link.edge];
    (link.prev == kNone ? queue.first : links_[link.prev].next) = link.next;
    (link.next == kNone ? queue.last : links_[link.next].prev) = link.prev;
    links_[id].edge = kIdle;
  }
  void clear() {
    links_.assign(links_.size(), Link{kNone, kNone, kIdle});
    queues_.fill({});
  }

 private:
  static constexpr std::int32_t kIdle = -1;
  struct Link {
    std::uint32_t prev;
    std::uint32_t next;
    std::int32_t edge;
  };
  struct Queue {
    std::uint32_t first = kNone;
    std::uint32_t last = kNone;
  };

  std::vector<Link> links_;
  std::array<Queue, kBuckets> queues_;
};

}  // namespace eviction::gittins
