// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
//
// GDSF: Cherkasova, "Improving WWW proxies performance with greedy-dual-size-frequency
// caching policy", HP Labs HPL-98-69R1, 1998. A block's priority is the clock at its
// last use plus its uses times its cost; the clock is the priority of the block evicted
// last. So what is dear to recompute stays longer, and what was popular once is passed
// in time. With equal costs this is LFU with ageing.
//
// Where this differs from the paper, and why:
// - All blocks are of one size.
// - The cost is that of recomputing the block at its depth, relative to one at depth
//   zero: attention makes the end of a long prompt dearer than its beginning. In units
//   of 1/256, from 1/256 to 8,191, so that priorities are whole numbers and a hand-over
//   is exact.
// - The clock at a use is that when the block is released after it. A block that comes
//   back without a hit (a pin) keeps its priority, but is not put below the clock.
//
// No ghosts. A parent can go before its child, which is dearer: then the child is lost
// too.
#pragma once

#include <algorithm>

#include "../scored_uses.h"

namespace eviction {

// The score is the priority.
class Gdsf final : public ScoredUses<std::uint64_t> {
 public:
  using ScoredUses::ScoredUses;

  void check() const override {
    ScoredUses::check();
    for (Slot slot = 0; slot < num_slots(); ++slot) {
      if (heap_.contains(slot)) require(heap_.score(slot) >= clock_, "gdsf: a priority is below the clock");
    }
  }

 protected:
  void used(Slot slot) override { heap_.set_score(slot, clock_ + std::uint64_t{state(slot).uses} * state(slot).cost); }
  void enqueue(Slot slot) override {
    heap_.set_score(slot, std::max(heap_.score(slot), clock_));
    heap_.push(slot);
  }
  std::uint32_t age(Slot slot) const override {
    return static_cast<std::uint32_t>(std::max(heap_.score(slot), clock_) - clock_);
  }
  void set_age(Slot slot, std::uint32_t age) override { heap_.set_score(slot, clock_ + age); }

  Slot choose() override {
    const Slot slot = ScoredUses::choose();
    if (slot != kNoSlot) clock_ = heap_.score(slot);
    return slot;
  }
};

}  // namespace eviction
