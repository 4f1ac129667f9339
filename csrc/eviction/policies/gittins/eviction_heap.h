// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
//
// The segments with evictable blocks, the next to give one on top. A binary heap that
// knows where each segment stands: one whose index changed is moved, one that is gone
// is removed, and the heap never holds more than there are.
//
// A segment whose last block has a resident child is *blocked* and stands behind all
// that are not. So the top is a block that may go while there is one, and else the least
// bad of those that may not: pins can leave a pool without a leaf.
#pragma once

#include <utility>
#include <vector>

#include "../../types.h"

namespace eviction::gittins {

// In the order of eviction. Of equal index the older goes first.
struct Rank {
  bool blocked = false;
  float index = 0.0f;
  std::uint32_t ticket = 0;  // counts segments
  bool operator<(const Rank& other) const {
    if (blocked != other.blocked) return other.blocked;
    return index != other.index ? index < other.index : ticket < other.ticket;
  }
};

class EvictionHeap {
 public:
  explicit EvictionHeap(std::uint32_t capacity) : places_(capacity, kNone) { entries_.reserve(capacity); }

  std::size_t size() const { return entries_.size(); }
  bool empty() const { return entries_.empty(); }
  std::size_t bytes() const { return places_.size() * sizeof(std::uint32_t) + entries_.capacity() * sizeof(Entry); }
  std::uint32_t top() const { return entries_[0].id; }
  bool contains(std::uint32_t id) const { return places_[id] != kNone; }
  // For a walk in order without a change: the children of place i are 2 i + 1 and 2 i + 2.
  std::uint32_t id_at(std::size_t place) const { return entries_[place].id; }
  const Rank& rank_at(std::size_t place) const { return entries_[place].rank; }

  // Adds it, or moves it to where it stands by now.
  void set(std::uint32_t id, const Rank& rank) {
    if (places_[id] == kNone) {
      entries_.push_back({rank, id});
      places_[id] = static_cast<std::uint32_t>(entries_.size() - 1);
    } else {
      entries_[places_[id]].rank = rank;
    }
    settle(places_[id]);
  }
  void remove(std::uint32_t id) {
    const std::uint32_t place = places_[id];
    if (place == kNone) return;
    places_[id] = kNone;
    const Entry last = entries_.back();
    entries_.pop_back();
    if (place == entries_.size()) return;
    put(place, last);
    settle(place);
  }
  void clear() {
    entries_.clear();
    places_.assign(places_.size(), kNone);
  }
  void check() const {
    for (std::size_t place = 0; place < entries_.size(); ++place) {
      require(places_[entries_[place].id] == place, "eviction heap: a segment stands elsewhere");
      require(place == 0 || !(entries_[place].rank < entries_[(place - 1) / 2].rank), "eviction heap: not in order");
    }
    std::size_t count = 0;
    for (const std::uint32_t place : places_) count += place != kNone;
    require(count == entries_.size(), "eviction heap: a segment stands nowhere");
  }

 private:
  static constexpr std::uint32_t kNone = 0xffffffffu;
  struct Entry {
    Rank rank;
    std::uint32_t id;
  };

  void put(std::size_t place, const Entry& entry) {
    entries_[place] = entry;
    places_[entry.id] = static_cast<std::uint32_t>(place);
  }
  void settle(std::size_t place) {
    const Entry entry = entries_[place];
    while (place > 0 && entry.rank < entries_[(place - 1) / 2].rank) {
      put(place, entries_[(place - 1) / 2]);
      place = (place - 1) / 2;
    }
    for (std::size_t child = 2 * place + 1; child < entries_.size(); child = 2 * place + 1) {
      if (child + 1 < entries_.size() && entries_[child + 1].rank < entries_[child].rank) ++child;
      if (!(entries_[child].rank < entry.rank)) break;
      put(place, entries_[child]);
      place = child;
    }
    put(place, entry);
  }

  std::vector<Entry> entries_;
  std::vector<std::uint32_t> places_;  // by segment
};

}  // namespace eviction::gittins
