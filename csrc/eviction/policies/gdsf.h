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
// - Uses are counted up to 1,023, once for a request and block, also while it is in use.
//
// No ghosts. A parent can go before its child, which is dearer: then the child is lost
// too.
#pragma once

#include <algorithm>

#include "../cost_units.h"
#include "../policy.h"
#include "../slot_heap.h"

namespace eviction {

class Gdsf final : public Policy {
 public:
  explicit Gdsf(std::uint32_t num_slots) : Policy(num_slots), heap_(num_slots), state_(num_slots) {}

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
    State& state = state_[slot];
    if (state.hit) heap_.set_score(slot, clock_ + std::uint64_t{state.uses} * state.cost);
    state.hit = false;
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
      require(knows(slot) && state_[slot].uses > 0, "gdsf: an evictable block has no key, or was never used");
      require(heap_.score(slot) >= clock_, "gdsf: a priority is below the clock");
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
    heap_.set_score(slot, clock_ + known.queue);
    state_[slot] = {known.value >> 11, static_cast<std::uint16_t>(known.value % 1024), (known.value >> 10 & 1) != 0};
    if (evictable) enqueue(slot);
  }

 protected:
  Slot choose() override {
    if (size() == 0) return kNoSlot;
    const Slot slot = heap_.lowest();
    heap_.erase(slot);
    clock_ = heap_.score(slot);
    state_[slot] = {};
    return slot;
  }

 private:
  struct State {
    std::uint32_t cost = 0;  // units
    std::uint16_t uses = 0;
    bool hit = false;  // used since it was queued
  };
  static constexpr std::uint16_t kMostUses = 1023;

  void count(Slot slot) {
    if (state_[slot].uses < kMostUses) ++state_[slot].uses;
    state_[slot].hit = true;
  }
  void enqueue(Slot slot) {
    heap_.set_score(slot, std::max(heap_.score(slot), clock_));
    heap_.push(slot);
  }
  Snapshot::Entry entry(Slot slot) const {
    const State& state = state_[slot];
    return {keys_[slot], static_cast<std::uint32_t>(std::max(heap_.score(slot), clock_) - clock_),
            state.cost << 11 | (state.hit ? 1u << 10 : 0u) | state.uses};
  }

  SlotHeap<std::uint64_t> heap_;  // by priority
  std::vector<State> state_;
  std::uint64_t clock_ = 0;
};

}  // namespace eviction
