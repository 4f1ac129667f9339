// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
//
// Policies that fail, as someone's own policy may: the queue must notice, and serve
// on in LRU order. Each is right for a while.
#pragma once

#include <string>

#include "policies/lru.h"

namespace eviction {

enum class Fault {
  kThrows,  // from whatever call is next
  kThrowsInVictim,
  kThrowsInDisown,
  kThrowsInClear,
  kHeldBlock,      // chooses a block that is in use
  kSameBlock,      // chooses the same block twice
  kNothing,        // chooses none although one is evictable
  kNoSuchBlock,    // a number that is no block
  kShortPeek,      // looks ahead at too few blocks
  kRepeatingPeek,  // at one block again and again
};

inline constexpr Fault kFaults[] = {
    Fault::kThrows,    Fault::kThrowsInVictim, Fault::kThrowsInDisown, Fault::kThrowsInClear, Fault::kHeldBlock,
    Fault::kSameBlock, Fault::kNothing,        Fault::kNoSuchBlock,    Fault::kShortPeek,     Fault::kRepeatingPeek,
};

class BadPolicy final : public Policy {
 public:
  // Fails from the `good_calls`-th call on, at the first call that can show the fault.
  BadPolicy(std::uint32_t num_slots, Fault fault, std::uint64_t good_calls)
      : Policy(num_slots), lru_(num_slots), fault_(fault), good_calls_(good_calls) {}

  Traits traits() const override { return {}; }
  std::uint32_t size() const override { return lru_.size(); }
  std::size_t ghost_limit() const override { return 1; }  // else no one disowns
  std::size_t bytes() const override { return lru_.bytes(); }
  void insert(Slot slot, Key key, const BlockInfo& info) override {
    call();
    learn(slot, key);
    is_evictable_again(slot);
    lru_.insert(slot, key, info);
  }
  void reinsert(Slot slot) override {
    call();
    is_evictable_again(slot);
    lru_.reinsert(slot);
  }
  void take(Slot slot) override {
    call();
    last_taken_ = slot;
    lru_.take(slot);
  }
  void forget(Slot slot) override {
    call();
    unlearn(slot);
    lru_.forget(slot);
  }
  void disown(Key) override {
    call();
    fail_in(Fault::kThrowsInDisown);
  }
  std::vector<Slot> peek(std::size_t n) const override {
    std::vector<Slot> out = lru_.peek(n);
    if (calls_ >= good_calls_ && !out.empty()) {
      if (fault_ == Fault::kShortPeek) out.pop_back();
      if (fault_ == Fault::kRepeatingPeek) out.assign(out.size(), out.front());
    }
    return out;
  }
  void clear() override {
    fail_in(Fault::kThrowsInClear);
    unlearn_all();
    lru_.clear();
  }
  void check() const override { lru_.check(); }
  Snapshot snapshot() const override { return lru_.snapshot(); }
  void place(Slot slot, const Snapshot::Entry& entry, bool evictable) override {
    learn(slot, entry.key);
    lru_.place(slot, entry, evictable);
  }
  void admit(const Admission&) override { call(); }

 protected:
  Slot choose() override {
    call();
    fail_in(Fault::kThrowsInVictim);
    if (calls_ >= good_calls_) {
      if (fault_ == Fault::kHeldBlock && last_taken_ != kNoSlot) return last_taken_;
      if (fault_ == Fault::kSameBlock && last_chosen_ != kNoSlot) return last_chosen_;
      if (fault_ == Fault::kNothing) return kNoSlot;
      if (fault_ == Fault::kNoSuchBlock) return num_slots() + 3;
    }
    last_chosen_ = lru_.victim().slot;
    return last_chosen_;
  }

 private:
  void call() {
    ++calls_;
    fail_in(Fault::kThrows);
  }
  // Then it would be a fair choice.
  void is_evictable_again(Slot slot) {
    if (slot == last_taken_) last_taken_ = kNoSlot;
    if (slot == last_chosen_) last_chosen_ = kNoSlot;
  }
  void fail_in(Fault fault) const {
    if (fault == fault_ && calls_ >= good_calls_) throw std::runtime_error("on purpose");
  }

  Lru lru_;
  Fault fault_;
  std::uint64_t good_calls_;
  std::uint64_t calls_ = 0;
  Slot last_taken_ = kNoSlot;
  Slot last_chosen_ = kNoSlot;
};

}  // namespace eviction
