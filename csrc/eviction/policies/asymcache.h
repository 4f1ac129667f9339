// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
//
// The eviction score of AsymCache, arXiv 2606.02964, 2026: the probability that a block
// is used again times what it then costs to recompute at its place in the prompt. The
// block of lowest expected cost goes.
//
// Where this differs from the paper, and why:
// - The probability is taken to rise with the number of uses and to halve with every
//   `half_life` of a pool's worth of accesses since the last: in logarithms a sum in
//   which the age is the same for all, so that scores need not be renewed and a heap
//   holds their order. The paper fits its own.
// - The rest of AsymCache, an attention kernel for prompts with holes and the scheduling
//   of chunks, is no part of a policy. Without hole filling a block is worth nothing
//   when one before it is gone, and since the beginning of a prompt is the cheaper part,
//   it goes first: expect less than LRU, except where costs are next to equal.
//
// No ghosts.
#pragma once

#include <algorithm>
#include <cmath>

#include "../scored_uses.h"

namespace eviction {

class AsymCache final : public ScoredUses<double> {
 public:
  struct Config {
    double half_life = 1.0;  // in pools' worth of accesses, [0.01, 100]
  };

  AsymCache(std::uint32_t num_slots, const Config& config)
      : ScoredUses(num_slots), half_life_(config.half_life * std::max(1u, num_slots)), used_(num_slots, 0) {}

  std::size_t bytes() const override { return ScoredUses::bytes() + used_.size() * sizeof(used_[0]); }

  void admit(const Admission& request) override {
    clock_ += request.keys.size();
    ScoredUses::admit(request);
  }

  void adopt_history(const Snapshot& snapshot) override {
    ScoredUses::adopt_history(snapshot);
    adopted_clock_ = clock_;
  }

 protected:
  void used(Slot slot) override { used_[slot] = static_cast<std::uint32_t>(clock_); }
  // The logarithm of the expected cost, but for what is the same for all blocks.
  void enqueue(Slot slot) override {
    const std::uint64_t used = clock_ - age(slot);
    heap_.set_score(slot, std::log2(static_cast<double>(state(slot).uses) * state(slot).cost) +
                              static_cast<double>(used) / half_life_);
    heap_.push(slot);
  }
  std::uint32_t age(Slot slot) const override { return static_cast<std::uint32_t>(clock_) - used_[slot]; }
  void set_age(Slot slot, std::uint32_t age) override {
    used_[slot] = static_cast<std::uint32_t>(adopted_clock_) - age;
  }

 private:
  double half_life_;                 // accesses, which the clock counts
  std::vector<std::uint32_t> used_;  // the clock at the last use, modulo 2^32
  std::uint64_t adopted_clock_ = 0;  // requests come and go during a hand-over
};

}  // namespace eviction
