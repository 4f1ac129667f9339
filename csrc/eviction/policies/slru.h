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
#include "../queue_set.h"

namespace eviction {

class Slru final : public Policy {
 public:
  struct Config {
    double protected_ratio = 0.8;  // of the evictable blocks, (0, 1)
  };

  Slru(std::uint32_t num_slots, const Config& config) : Policy(num_slots), config_(config), queues_(links_) {}

  Traits traits() const override { return {.prefix_safe = true, .moves_on_hit = true}; }
  std::uint32_t size() const override { return queues_.size(); }
  std::size_t bytes() const override { return base_bytes() + queues_.bytes(); }

  void insert(Slot slot, Key key, const BlockInfo&) override {
    learn(slot, key);
    reinsert(slot);
  }
  void reinsert(Slot slot) override {
    if (queues_.note(slot) == kHit) {
      queues_.assign(slot, kProtected);
      queues_.set_note(slot, 0);
    }
    queues_.enqueue(slot);
    while (queues_[kProtected].size() > config_.protected_ratio * size()) {
      queues_.move(queues_[kProtected].front(), kProbation);
    }
  }
  void take(Slot slot) override { queues_.dequeue(slot); }

  void forget(Slot slot) override {
    queues_.drop(slot);
    unlearn(slot);
  }

  std::vector<Slot> peek(std::size_t n) const override { return queues_.peek(n); }

  void clear() override {
    queues_.clear();
    unlearn_all();
    ghost_hits_ = 0;
  }

  void check() const override {
    queues_.check([this](Slot slot) { return knows(slot); });
  }

  void admit(const Admission& request) override {
    for (const Slot slot : request.slots) {
      if (slot != kNoSlot) queues_.set_note(slot, kHit);
    }
  }

  Snapshot snapshot() const override {
    Snapshot out;
    queues_.each([this](Slot slot) { return knows(slot); },
                 [&](Slot slot) { out.entries.push_back({keys_[slot], queues_.queue_of(slot), queues_.note(slot)}); });
    return out;
  }
  // The share is left alone: while the blocks come one by one it means nothing.
  void place(Slot slot, const Snapshot::Entry& known, bool evictable) override {
    learn(slot, known.key);
    queues_.assign(slot, static_cast<std::uint8_t>(known.queue));
    queues_.set_note(slot, static_cast<std::uint8_t>(known.value));
    if (evictable) queues_.enqueue(slot);
  }

 protected:
  Slot choose() override {
    const SlotList& queue = queues_[queues_[kProbation].empty() ? kProtected : kProbation];
    const Slot slot = queue.front();
    if (slot != kNoSlot) queues_.drop(slot);
    return slot;
  }

 private:
  static constexpr std::uint8_t kProbation = 0;
  static constexpr std::uint8_t kProtected = 1;
  static constexpr std::uint8_t kHit = 1;  // a request hit it since it was queued

  Config config_;
  QueueSet<2> queues_;
};

}  // namespace eviction
