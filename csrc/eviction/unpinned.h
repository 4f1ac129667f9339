// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
//
// A cache as the literature has it: one access after the other, nothing in use
// between them, every hit counted by itself. This is what other simulators model,
// and what WAKMan replays a window on; it is not vLLM's pool (pool.h).
#pragma once

#include <memory>

#include "key_index.h"
#include "policy.h"

namespace eviction {

class UnpinnedCache {
 public:
  // Holds as many blocks as the policy has slots.
  explicit UnpinnedCache(std::unique_ptr<Policy> policy)
      : policy_(std::move(policy)), index_(policy_->num_slots()), moves_(policy_->traits().moves_on_hit) {}

  // True when the key was there.
  bool access(Key key) {
    const auto key_at = [this](std::uint32_t slot) { return policy_->content(slot); };
    Slot slot = index_.find(key, key_at);
    const bool hit = slot != KeyIndex::kAbsent;
    if (hit && moves_) policy_->take(slot);
    policy_->admit({++accesses_, {&key, 1}, {&slot, 1}, 0.0});
    if (hit) {
      if (moves_) policy_->reinsert(slot);
      return true;
    }
    if (filled_ < policy_->num_slots()) {
      slot = filled_++;
    } else {
      slot = policy_->victim().slot;
      index_.erase(policy_->content(slot), key_at);
    }
    policy_->set_content(slot, key);
    index_.insert(key, slot);
    policy_->insert(slot, key, BlockInfo{});
    return false;
  }

  Policy& policy() { return *policy_; }

 private:
  std::unique_ptr<Policy> policy_;
  KeyIndex index_;
  bool moves_;
  std::uint32_t filled_ = 0;
  Serial accesses_ = 0;
};

}  // namespace eviction
