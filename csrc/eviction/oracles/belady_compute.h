// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
//
// Belady with costs, an oracle of "When Fancy Eviction Fails" (section 5.2): of all
// blocks the one goes first that is needed last for what it costs to recompute. It is
// no bound, but close to one (docs/lab.md has figures), and far cheaper than the
// optimum. With the same cost for all blocks it is Belady.
//
// The paper prints its score as cost times time until the next access, the highest to go
// first. That keeps what is cheap, and saves less than Belady; what comes close to the
// optimum, as the paper says it does, is time divided by cost. That is done here. Time
// is counted in blocks asked for, so that it runs as fast as the pool fills.
//
// Deep blocks cost most, so that the shallow ones of a prefix go first and leave holes: a
// run of blocks that a request has to recompute before others that it finds. An engine
// has these hits only where it fills holes; here that costs nothing but the blocks.
#pragma once

#include <limits>
#include <tuple>
#include <vector>

#include "../types.h"
#include "next_use.h"

namespace eviction {

class BeladyCompute {
 public:
  struct Counts : OracleCounts {
    double saved = 0.0;             // cost of the hits
    std::uint64_t holes = 0;        // runs of prompt blocks that are recomputed
    std::uint64_t hole_blocks = 0;  // blocks in them
  };

  static Counts replay(const OracleTrace& trace, std::uint32_t capacity, std::uint32_t block_size, RecomputeCost cost) {
    return BeladyCompute(trace, capacity, block_size, cost).run();
  }

 private:
  // Blocks of one cost. Among them the order is Belady's, whatever the time.
  struct Class {
    double cost;
    std::vector<NextUse> heap;
    std::uint32_t live = 0;  // entries that no use has left behind
  };

  BeladyCompute(const OracleTrace& trace, std::uint32_t capacity, std::uint32_t block_size, RecomputeCost cost)
      : trace_(trace), capacity_(capacity), resident_(trace.distinct(), false), next_use_(next_uses(trace)) {
    std::vector<std::uint32_t> depths(trace.distinct(), kNever);
    std::uint32_t longest = 0;
    for (const OracleTrace::Request& request : trace.requests()) {
      longest = std::max(longest, request.all);
      for (std::uint32_t i = 0; i < request.all; ++i) {
        std::uint32_t& depth = depths[trace.id(request.first + i)];
        if (depth != kNever && depth != i) {
          throw std::invalid_argument("belady-compute needs a trace whose keys name prefixes: one key has two depths");
        }
        depth = i;
      }
    }
    // The cost does not fall with depth: equal ones are neighbours.
    for (std::uint32_t i = 0; i < longest; ++i) {
      const double here = cost((i + 1) * block_size);
      if (classes_.empty() || classes_.back().cost != here) classes_.push_back({here, {}});
      class_of_.push_back(static_cast<std::uint32_t>(classes_.size() - 1));
    }
  }

  Counts run() {
    Counts counts;
    std::uint32_t at = 0;
    for (const OracleTrace::Request& request : trace_.requests()) {
      find(request, counts);
      keep(request, at);
      if (size_ > capacity_) evict(at, request.first + request.all, counts);
      ++at;
    }
    return counts;
  }

  void find(const OracleTrace::Request& request, Counts& counts) const {
    std::uint32_t hits = 0;
    bool in_hole = false;
    for (std::uint32_t i = 0; i < request.prompt; ++i) {
      const bool hit = i < request.findable && resident_[trace_.id(request.first + i)];
      if (hit) {
        ++hits;
        counts.saved += classes_[class_of_[i]].cost;
      }
      counts.holes += !hit && !in_hole;
      counts.hole_blocks += !hit;
      in_hole = !hit;
    }
    counts.query_blocks += request.prompt;
    counts.hit_blocks += hits;
    counts.hits.push_back(hits);
  }

  void keep(const OracleTrace::Request& request, std::uint32_t now) {
    for (std::uint32_t i = 0; i < request.all; ++i) {
      const std::uint32_t id = trace_.id(request.first + i);
      Class& mine = classes_[class_of_[i]];
      const bool known = resident_[id];
      // What was no use has not changed when the next one is.
      if (known && i >= request.findable) continue;
      size_ += !known;
      mine.live += !known;
      resident_[id] = true;
      mine.heap.push_back({next_use_[request.first + i], i, id});
      std::push_heap(mine.heap.begin(), mine.heap.end());
      if (mine.heap.size() >= 2 * std::size_t{mine.live} + 64) drop_past_uses(mine.heap, now);
    }
  }

  // The best of each class, in a heap: one request asks for many victims, and between
  // them no time passes.
  void evict(std::uint32_t now, std::size_t place, Counts& counts) {
    using Rank = std::tuple<double, double, std::uint32_t>;  // score, cheapness, class
    std::vector<Rank> best;
    const auto rank = [&](std::uint32_t i) {
      const std::uint32_t next = classes_[i].heap.front().next_use;
      const double left = next == kNever ? std::numeric_limits<double>::infinity()
                                         : static_cast<double>(trace_.requests()[next].first - place + 1);
      return Rank{left / classes_[i].cost, -classes_[i].cost, i};
    };
    for (std::uint32_t i = 0; i < classes_.size(); ++i) {
      if (classes_[i].live > 0) best.push_back(rank(i));
    }
    std::make_heap(best.begin(), best.end());
    for (; size_ > capacity_; --size_) {
      std::pop_heap(best.begin(), best.end());
      const std::uint32_t chosen = std::get<2>(best.back());
      best.pop_back();
      Class& from = classes_[chosen];
      require(from.heap.front().next_use > now, "belady-compute: a block is evicted that a use has left behind");
      resident_[from.heap.front().id] = false;
      std::pop_heap(from.heap.begin(), from.heap.end());
      from.heap.pop_back();
      ++counts.evictions;
      if (--from.live == 0) continue;
      best.push_back(rank(chosen));
      std::push_heap(best.begin(), best.end());
    }
  }

  const OracleTrace& trace_;
  std::uint32_t capacity_;
  std::vector<bool> resident_;
  std::vector<std::uint32_t> next_use_;  // of each access
  std::vector<Class> classes_;           // by cost
  std::vector<std::uint32_t> class_of_;  // by depth in blocks
  std::uint32_t size_ = 0;
};

}  // namespace eviction
