// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
//
// Least recently used, as vLLM's own free queue does it: what was released last
// is evicted last, and of one request the tail goes first because it is released
// first. Takes blocks without a key as well, in their order of release. The
// default `--eviction-policy lru` does not even use this class but vLLM's queue;
// this is the LRU of the shadows, the simulator and `adaptive`.
#pragma once

#include "../policy.h"

namespace eviction {

class Lru final : public Policy {
 public:
  explicit Lru(std::uint32_t num_slots) : Policy(num_slots), order_(links_), evictable_(num_slots, false) {}

  Traits traits() const override { return {.prefix_safe = true, .moves_on_hit = true, .upstream_order = true}; }
  std::uint32_t size() const override { return order_.size(); }
  std::size_t bytes() const override { return base_bytes() + keys_.size() / 8; }

  void insert(Slot slot, Key key, const BlockInfo&) override {
    learn(slot, key);
    enqueue(slot);
  }
  void reinsert(Slot slot) override { enqueue(slot); }
  void take(Slot slot) override { dequeue(slot); }
  void forget(Slot slot) override {
    if (evictable_[slot]) dequeue(slot);
    unlearn(slot);
  }
  std::vector<Slot> peek(std::size_t n) const override {
    std::vector<Slot> out;
    for (Slot slot = order_.front(); slot != kNoSlot && out.size() < n; slot = order_.next(slot)) out.push_back(slot);
    return out;
  }
  void clear() override {
    order_.clear();
    evictable_.assign(evictable_.size(), false);
    unlearn_all();
    ghost_hits_ = 0;
  }
  void check() const override {
    order_.check([this](Slot slot) { require(evictable_[slot], "lru: a queued block is not evictable"); });
    std::uint32_t count = 0;
    for (const bool evictable : evictable_) count += evictable;
    require(count == order_.size(), "lru: an evictable block is not queued");
  }
  Snapshot snapshot() const override {
    Snapshot out;
    for (const Slot slot : peek(size())) out.entries.push_back({keys_[slot], 0, 0});
    return out;
  }
  void place(Slot slot, const Snapshot::Entry& entry, bool evictable) override {
    learn(slot, entry.key);
    if (evictable) enqueue(slot);
  }

 protected:
  Slot choose() override {
    const Slot slot = order_.front();
    if (slot != kNoSlot) dequeue(slot);
    return slot;
  }

 private:
  void enqueue(Slot slot) {
    order_.push_back(slot);
    evictable_[slot] = true;
  }
  void dequeue(Slot slot) {
    order_.erase(slot);
    evictable_[slot] = false;
  }

  SlotList order_;
  std::vector<bool> evictable_;
};

}  // namespace eviction
