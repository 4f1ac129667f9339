// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
//
// What the policies share that score a block by its uses and its recompute cost: a heap
// by score, a count of uses, the cost, and a clock. A policy says what the score is, and
// what of a block's age a hand-over passes on.
//
// Uses are counted up to 1,023, once for a request and block, also while it is in use.
#pragma once

#include <vector>

#include "cost_units.h"
#include "policy.h"
#include "slot_heap.h"

namespace eviction {

template <typename Score>
class ScoredUses : public Policy {
 public:
  explicit ScoredUses(std::uint32_t num_slots) : Policy(num_slots), heap_(num_slots), state_(num_slots) {}

  Traits traits() const override { return {.needs_cost = true, .moves_on_hit = true}; }
  std::uint32_t size() const override { return heap_.size(); }
  std::size_t bytes() const override { return base_bytes() + heap_.bytes() + state_.size() * sizeof(State); }

  void insert(Slot slot, Key key, const BlockInfo& info) override {
    learn(slot, key);
    state_[slot].cost = cost_units(info.cost);
    count(slot);
    reinsert(slot);
  }
  void reinsert(Slot slot) override {
    if (state_[slot].hit) used(slot);
    state_[slot].hit = 0;
    enqueue(slot);
  }
  void take(Slot slot) override { heap_.erase(slot); }

  void forget(Slot slot) override {
    if (heap_.contains(slot)) heap_.erase(slot);
    state_[slot] = {};
    unlearn(slot);
  }

  std::vector<Slot> peek(std::size_t n) const override { return heap_.peek(n); }

  void clear() override {
    heap_.clear();
    state_.assign(state_.size(), {});
    unlearn_all();
    clock_ = 0;
    ghost_hits_ = 0;
  }

  void check() const override {
    heap_.check();
    for (Slot slot = 0; slot < num_slots(); ++slot) {
      if (!heap_.contains(slot)) continue;
      require(knows(slot) && state_[slot].uses > 0, "scored uses: an evictable block has no key, or was never used");
    }
  }

  void admit(const Admission& request) override {
    for (const Slot slot : request.slots) {
      if (slot != kNoSlot) count(slot);
    }
  }

  Snapshot snapshot() const override {
    Snapshot out;
    for (const Slot slot : peek(size())) out.entries.push_back(entry(slot));
    for (Slot slot = 0; slot < num_slots(); ++slot) {  // held, but known
      if (knows(slot) && !heap_.contains(slot)) out.entries.push_back(entry(slot));
    }
    out.scalars = {static_cast<double>(clock_)};
    return out;
  }
  void adopt_history(const Snapshot& snapshot) override { clock_ = static_cast<std::uint64_t>(snapshot.scalars.at(0)); }
  void place(Slot slot, const Snapshot::Entry& known, bool evictable) override {
    learn(slot, known.key);
    state_[slot] = {.cost = known.value >> 11, .uses = known.value % 1024, .hit = known.value >> 10 & 1};
    set_age(slot, known.queue);
    if (evictable) enqueue(slot);
  }

 protected:
  struct State {
    std::uint32_t cost : 21 = 0;  // units
    std::uint32_t uses : 10 = 0;
    std::uint32_t hit : 1 = 0;  // used since it was queued
  };

  // The block comes back after a use.
  virtual void used(Slot slot) = 0;
  // Sets the score and puts the block into the heap.
  virtual void enqueue(Slot slot) = 0;
  // What a hand-over passes on of when the block was used.
  virtual std::uint32_t age(Slot slot) const = 0;
  virtual void set_age(Slot slot, std::uint32_t age) = 0;

  Slot choose() override {
    if (size() == 0) return kNoSlot;
    const Slot slot = heap_.lowest();
    heap_.erase(slot);
    state_[slot] = {};
    return slot;
  }

  const State& state(Slot slot) const { return state_[slot]; }

  SlotHeap<Score> heap_;
  std::uint64_t clock_ = 0;

 private:
  static constexpr std::uint32_t kMostUses = 1023;

  void count(Slot slot) {
    if (state_[slot].uses < kMostUses) ++state_[slot].uses;
    state_[slot].hit = 1;
  }
  Snapshot::Entry entry(Slot slot) const {
    const State& state = state_[slot];
    return {keys_[slot], age(slot), state.cost << 11 | std::uint32_t{state.hit} << 10 | state.uses};
  }

  std::vector<State> state_;
};

}  // namespace eviction
