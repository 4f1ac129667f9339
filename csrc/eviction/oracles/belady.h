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

#include <vector>

#include "next_use.h"

namespace eviction {

class Belady {
 public:
  static OracleCounts replay(const OracleTrace& trace, std::uint32_t capacity) { return Belady(trace, capacity).run(); }

 private:
  Belady(const OracleTrace& trace, std::uint32_t capacity)
      : trace_(trace), capacity_(capacity), resident_(trace.distinct(), false), next_use_(next_uses(trace)) {}

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
      if (heap_.size() >= 2 * std::size_t{size_} + 1024) drop_past_uses(heap_, at);
      ++at;
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

  const OracleTrace& trace_;
  std::uint32_t capacity_;
  std::vector<bool> resident_;
  std::vector<std::uint32_t> next_use_;  // of each access
  std::vector<NextUse> heap_;
  std::uint32_t size_ = 0;
};

}  // namespace eviction
