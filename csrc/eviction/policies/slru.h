// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
//
// SLRU: Karedla, Love, Wherry, "Caching strategies to improve disk system
// performance", IEEE Computer 27(3), 1994. New blocks enter a probationary segment;
// those that are hit move to a protected one. What the protected segment has no
// room for goes back to the end of the probationary one, so that it has another
// chance there. Both are LRU, and the probationary one is evicted from.
//
// Where this differs from the paper, and why:
// - The protected segment has a share of the *evictable* blocks, not of the pool:
//   requests hold a varying part of it. The share is enforced when a block enters
//   the segment; blocks that a request takes from the other one push nothing out.
// - A block is promoted when it comes back after a request hit it; a pin that is
//   no hit puts it at the end of the segment it was in.
//
// No ghosts. A parent is hit whenever its child is, and released after it, in
// either segment: so it never goes first.
#pragma once

#include "../policy.h"

namespace eviction {

class Slru final : public Policy {
 public:
  struct Config {
    double protected_ratio = 0.8;  // of the evictable blocks, (0, 1)
  };

  Slru(std::uint32_t num_slots, const Config& config)
      : Policy(num_slots), config_(config), probation_(links_), protected_(links_), state_(num_slots, 0) {}

  Traits traits() const override { return {.prefix_safe = true, .moves_on_hit = true}; }
  std::uint32_t size() const override { return probation_.size() + protected_.size(); }
  std::size_t bytes() const override { return base_bytes() + state_.size(); }

  void insert(Slot slot, Key key, const BlockInfo&) override {
    learn(slot, key);
    reinsert(slot);
  }
  void reinsert(Slot slot) override {
    if (state_[slot] & kHit) state_[slot] = kProtected;
    enqueue(slot);
    while (protected_.size() > config_.protected_ratio * size()) {
      const Slot demoted = protected_.pop_front();
      state_[demoted] &= static_cast<std::uint8_t>(~kProtected);
      probation_.push_back(demoted);
    }
  }
  void take(Slot slot) override { dequeue(slot); }

  void forget(Slot slot) override {
    if (state_[slot] & kQueued) dequeue(slot);
    state_[slot] = 0;
    unlearn(slot);
  }

  std::vector<Slot> peek(std::size_t n) const override {
    std::vector<Slot> out;
    for (const SlotList* queue : {&probation_, &protected_}) {
      for (Slot slot = queue->front(); slot != kNoSlot && out.size() < n; slot = queue->next(slot)) out.push_back(slot);
    }
    return out;
  }

  void clear() override {
    probation_.clear();
    protected_.clear();
    state_.assign(state_.size(), 0);
    unlearn_all();
    ghost_hits_ = 0;
  }

  void check() const override {
    probation_.check(
        [this](Slot slot) { require((state_[slot] & (kProtected | kQueued)) == kQueued, "slru: wrong segment"); });
    protected_.check([this](Slot slot) {
      require((state_[slot] & (kProtected | kQueued)) == (kProtected | kQueued), "slru: wrong segment");
    });
    std::uint32_t queued = 0;
    for (Slot slot = 0; slot < num_slots(); ++slot) {
      if (!(state_[slot] & kQueued)) continue;
      ++queued;
      require(knows(slot), "slru: an evictable block has no key");
    }
    require(queued == size(), "slru: an evictable block is in no segment");
  }

  void admit(const Admission& request) override {
    for (const Slot slot : request.slots) {
      if (slot != kNoSlot) state_[slot] |= kHit;
    }
  }

  Snapshot snapshot() const override {
    Snapshot out;
    for (const Slot slot : peek(size())) out.entries.push_back(entry(slot));
    for (Slot slot = 0; slot < num_slots(); ++slot) {  // held, but known
      if (knows(slot) && !(state_[slot] & kQueued)) out.entries.push_back(entry(slot));
    }
    return out;
  }
  // The share is left alone: while the blocks come one by one it means nothing.
  void place(Slot slot, const Snapshot::Entry& known, bool evictable) override {
    learn(slot, known.key);
    state_[slot] = static_cast<std::uint8_t>((known.queue ? kProtected : 0) | (known.value ? kHit : 0));
    if (evictable) enqueue(slot);
  }

 protected:
  Slot choose() override {
    SlotList& queue = probation_.empty() ? protected_ : probation_;
    if (queue.empty()) return kNoSlot;
    const Slot slot = queue.pop_front();
    state_[slot] = 0;
    return slot;
  }

 private:
  static constexpr std::uint8_t kProtected = 1;  // belongs to the protected segment
  static constexpr std::uint8_t kHit = 2;        // a request hit it since it was queued
  static constexpr std::uint8_t kQueued = 4;     // stands in its segment

  Snapshot::Entry entry(Slot slot) const {
    return {keys_[slot], (state_[slot] & kProtected) ? 1u : 0u, (state_[slot] & kHit) ? 1u : 0u};
  }
  void enqueue(Slot slot) {
    (state_[slot] & kProtected ? protected_ : probation_).push_back(slot);
    state_[slot] |= kQueued;
  }
  void dequeue(Slot slot) {
    (state_[slot] & kProtected ? protected_ : probation_).erase(slot);
    state_[slot] &= static_cast<std::uint8_t>(~kQueued);
  }

  Config config_;
  SlotList probation_;
  SlotList protected_;
  std::vector<std::uint8_t> state_;
};

}  // namespace eviction
