// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
//
// Belady's MIN (IBM Systems Journal 5(2), 1966) for prefix caches: the block whose next
// use is farthest goes, the deepest first where several have the same. It may bypass: a
// block that is used later than all others is not kept at all.
//
// The order is leaf-closed by itself. Who uses a block uses its parent too, so that a
// child is never used sooner than its parent, and the tie goes to the deeper one: a
// block goes only when its children are gone, every resident block can be found, and
// blocks found one by one are the prefix found. Requests are intervals, from one use of
// a block to the next, of which as many as the capacity may overlap; dropping the one
// that ends last keeps the most (Faigle and Nawijn, Discrete Applied Mathematics 58,
// 1995). No order of eviction, prefix or not, therefore has more hits.
//
// What a use is decides where this stops being a bound. A request computes the block
// with its last prompt token, and its output, whether they are cached or not; these
// count as no use. Another policy might drop such a block and be given it back for
// nothing. And the pool model, where an output takes no room before it is written,
// may do better by that. With prompts alone, none ending with a block, it is a bound.
#pragma once

#include <tuple>

#include "oracle_trace.h"

namespace eviction {

class Belady {
 public:
  static OracleCounts replay(const OracleTrace& trace, std::uint32_t capacity) { return Belady(trace, capacity).run(); }

 private:
  static constexpr std::uint32_t kNever = std::numeric_limits<std::uint32_t>::max();

  // A resident block; in a heap, the next to go first.
  struct Entry {
    std::uint32_t next_use;  // a request
    std::uint32_t depth;     // blocks before it
    std::uint32_t id;
    bool operator<(const Entry& other) const {
      return std::tie(next_use, depth, id) < std::tie(other.next_use, other.depth, other.id);
    }
  };

  Belady(const OracleTrace& trace, std::uint32_t capacity)
      : trace_(trace), capacity_(capacity), resident_(trace.distinct(), false) {
    std::vector<std::uint32_t> upcoming(trace.distinct(), kNever);
    const auto& requests = trace.requests();
    if (!requests.empty()) next_use_.resize(requests.back().first + requests.back().all);
    for (std::size_t at = requests.size(); at-- > 0;) {
      for (std::uint32_t i = 0; i < requests[at].all; ++i) {
        std::uint32_t& next = upcoming[trace.id(requests[at].first + i)];
        next_use_[requests[at].first + i] = next;
        if (i < requests[at].findable) next = static_cast<std::uint32_t>(at);
      }
    }
  }

  OracleCounts run() {
    OracleCounts counts;
    std::uint32_t at = 0;
    for (const OracleTrace::Request& request : trace_.requests()) {
      counts.query_blocks += request.prompt;
      counts.hits.push_back(find(request));
      counts.hit_blocks += counts.hits.back();
      keep(request);
      for (; size_ > capacity_; --size_) {
        resident_[heap_.front().id] = false;
        std::pop_heap(heap_.begin(), heap_.end());
        heap_.pop_back();
        ++counts.evictions;
      }
      compact(at++);
    }
    return counts;
  }

  std::uint32_t find(const OracleTrace::Request& request) const {
    std::uint32_t hits = 0;
    while (hits < request.findable && resident_[trace_.id(request.first + hits)]) ++hits;
    for (std::uint32_t i = hits; i < request.findable; ++i) {
      if (resident_[trace_.id(request.first + i)]) {
        throw std::invalid_argument("belady needs a trace whose keys name prefixes: one key has two parents");
      }
    }
    return hits;
  }

  void keep(const OracleTrace::Request& request) {
    for (std::uint32_t i = 0; i < request.all; ++i) {
      const std::uint32_t id = trace_.id(request.first + i);
      const bool known = resident_[id];
      // What was no use has not changed when the next one is.
      if (known && i >= request.findable) continue;
      size_ += !known;
      resident_[id] = true;
      heap_.push_back({next_use_[request.first + i], i, id});
      std::push_heap(heap_.begin(), heap_.end());
    }
  }

  // A use leaves the entry behind that it ends. They come last, and never go.
  void compact(std::uint32_t now) {
    if (heap_.size() < 2 * std::size_t{size_} + 1024) return;
    std::erase_if(heap_, [now](const Entry& entry) { return entry.next_use <= now; });
    std::make_heap(heap_.begin(), heap_.end());
  }

  const OracleTrace& trace_;
  std::uint32_t capacity_;
  std::vector<bool> resident_;
  std::vector<std::uint32_t> next_use_;  // of each access's block: the request after this one
  std::vector<Entry> heap_;
  std::uint32_t size_ = 0;
};

}  // namespace eviction
