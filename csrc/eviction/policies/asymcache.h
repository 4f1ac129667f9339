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
// - Uses are counted up to 1,023, once for a request and block, also while it is in use.
//
// No ghosts.
#pragma once

#include <algorithm>
#include <cmath>

#include "../cost_units.h"
#include "../policy.h"
#include "../slot_heap.h"

namespace eviction {

class AsymCache final : public Policy {
 public:
  struct Config {
    double half_life = 1.0;  // in pools' worth of accesses, [0.01, 100]
  };

  AsymCache(std::uint32_t num_slots, const Config& config)
      : Policy(num_slots),
        half_life_(config.half_life * std::max(1u, num_slots)),
        heap_(num_slots),
        state_(num_slots) {}

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
    if (state_[slot].hit) state_[slot].used = static_cast<std::uint32_t>(clock_);
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
      require(knows(slot) || !heap_.contains(slot), "asymcache: an evictable block has no key");
    }
  }

  void admit(const Admission& request) override {
    clock_ += request.keys.size();
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
  void adopt_history(const Snapshot& snapshot) override {
    clock_ = adopted_clock_ = static_cast<std::uint64_t>(snapshot.scalars.at(0));
  }
  void place(Slot slot, const Snapshot::Entry& known, bool evictable) override {
    learn(slot, known.key);
    state_[slot] = {.used = static_cast<std::uint32_t>(adopted_clock_) - known.queue,
                    .cost = known.value >> 11,
                    .uses = known.value % 1024,
                    .hit = known.value >> 10 & 1};
    if (evictable) enqueue(slot);
  }

 protected:
  Slot choose() override {
    if (size() == 0) return kNoSlot;
    const Slot slot = heap_.lowest();
    heap_.erase(slot);
    state_[slot] = {};
    return slot;
  }

 private:
  struct State {
    std::uint32_t used = 0;       // the clock, modulo 2^32
    std::uint32_t cost : 21 = 0;  // units
    std::uint32_t uses : 10 = 0;
    std::uint32_t hit : 1 = 0;  // used since it was queued
  };
  static constexpr std::uint16_t kMostUses = 1023;

  void count(Slot slot) {
    if (state_[slot].uses < kMostUses) ++state_[slot].uses;
    state_[slot].hit = 1;
  }
  // The logarithm of the expected cost, but for what is the same for all blocks.
  void enqueue(Slot slot) {
    const State& state = state_[slot];
    const std::uint64_t used = clock_ - (static_cast<std::uint32_t>(clock_) - state.used);
    heap_.set_score(slot,
                    std::log2(static_cast<double>(state.uses) * state.cost) + static_cast<double>(used) / half_life_);
    heap_.push(slot);
  }
  Snapshot::Entry entry(Slot slot) const {
    const State& state = state_[slot];
    return {keys_[slot], static_cast<std::uint32_t>(clock_) - state.used,
            state.cost << 11 | std::uint32_t{state.hit} << 10 | state.uses};
  }

  double half_life_;  // accesses
  SlotHeap<double> heap_;
  std::vector<State> state_;
  std::uint64_t adopted_clock_ = 0;  // requests come and go during a hand-over
  std::uint64_t clock_ = 0;          // accesses
};

}  // namespace eviction
