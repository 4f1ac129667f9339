// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
//
// One pool for each candidate of `adaptive`, of the engine's own size, unsampled,
// and never reset at a decision: fed by the same requests, they say what each
// policy would have hit. Holes are filled where the policy leaves them, as in the
// engine. They are compared with one another, never with the live
// cache, which still holds what an earlier policy kept.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "policies/catalogue.h"
#include "pool.h"

namespace eviction {

struct Candidate {
  std::string name;
  Parameters parameters;
};

class ShadowSet {
 public:
  // Counted from the start; resets of the prefix cache among it.
  struct Counts {
    std::uint64_t requests = 0;
    std::uint64_t query_tokens = 0;
    std::vector<std::uint64_t> hit_tokens;  // of each candidate
    // The same as compute, in units of a block at depth zero: full blocks only.
    double query_cost = 0.0;
    std::vector<double> saved;
  };

  ShadowSet(std::uint32_t num_blocks, std::uint32_t block_size, std::vector<Candidate> candidates, Windows windows,
            RecomputeCost cost = {}, const std::optional<HoleRule>& holes = {})
      : block_size_(block_size), groups_(windows.size()), cost_(cost), candidates_(std::move(candidates)) {
    for (const Candidate& candidate : candidates_) {
      std::unique_ptr<Policy> policy = make_policy(candidate.name, num_blocks, candidate.parameters);
      const Layout layout{windows, block_size, cost, policy->traits().fills_holes ? holes : std::nullopt};
      pools_.push_back(std::make_unique<Pool>(std::move(policy), layout));
    }
    counts_.hit_tokens.assign(candidates_.size(), 0);
    counts_.saved.assign(candidates_.size(), 0.0);
  }
  ShadowSet(const ShadowSet&) = delete;
  ShadowSet& operator=(const ShadowSet&) = delete;

  std::size_t size() const { return pools_.size(); }
  const Candidate& candidate(std::size_t i) const { return candidates_.at(i); }
  Pool& pool(std::size_t i) { return *pools_.at(i); }
  const Counts& counts() const { return counts_; }
  std::size_t bytes() const {
    std::size_t total = 0;
    for (const auto& pool : pools_) total += pool->bytes();
    return total;
  }

  // As for a pool. Before the first request.
  void number_keys(Key last) {
    last_key_ = last;
    for (auto& pool : pools_) pool->number_keys(last);
  }

  // `prompt_tokens`: of the request; at least one of them is always computed.
  void admit(Serial serial, std::span<const Key> keys, std::uint32_t prompt_tokens, std::uint32_t num_blocks,
             double now) {
    const std::uint32_t limit = prompt_tokens > 0 ? (prompt_tokens - 1) / block_size_ : 0;
    ++counts_.requests;
    counts_.query_tokens += prompt_tokens;
    counts_.query_cost += cost_.of_prefix(static_cast<std::uint32_t>(keys.size() / groups_), block_size_);
    for (std::size_t i = 0; i < pools_.size(); ++i) {
      // A shadow that has no room now would have let the request wait a little; its
      // blocks are left out of this shadow, its hits are not.
      const Pool::Admitted admitted = pools_[i]->admit(serial, keys, limit, num_blocks, now);
      counts_.hit_tokens[i] += std::uint64_t{admitted.hits} * block_size_;
      counts_.saved[i] += admitted.saved;
    }
  }
  void grow(Serial serial, std::uint32_t num_blocks, std::span<const Key> keys = {}) {
    for (auto& pool : pools_) pool->grow(serial, num_blocks, keys);
  }
  void finish(Serial serial, std::span<const Key> keys, double now) {
    for (auto& pool : pools_) pool->finish(serial, keys, now);
  }
  void advance(double now) {
    for (auto& pool : pools_) pool->queue().advance(now);
  }
  void reset() {
    for (auto& pool : pools_) pool->reset();
  }

  // What a candidate has learnt; see policy.h.
  std::vector<double> model(std::size_t i) const { return pools_.at(i)->queue().policy().model(); }
  bool load_model(std::size_t i, std::span<const double> model) {
    return pools_.at(i)->queue().policy().load_model(model);
  }

  // For a pool whose slots are `residents`.
  HandOverPlan plan(std::size_t i, std::uint32_t num_slots, std::vector<Resident> residents) {
    std::unique_ptr<Policy> next = make_policy(candidates_.at(i).name, num_slots, candidates_.at(i).parameters);
    if (last_key_ != kNoKey) next->number_keys(last_key_);
    return plan_hand_over(std::move(next), pools_.at(i)->queue().policy().snapshot(), std::move(residents));
  }

 private:
  std::uint32_t block_size_;
  std::size_t groups_;
  RecomputeCost cost_;
  std::vector<Candidate> candidates_;
  std::vector<std::unique_ptr<Pool>> pools_;
  Counts counts_;
  Key last_key_ = kNoKey;  // when keys are numbered
};

}  // namespace eviction
