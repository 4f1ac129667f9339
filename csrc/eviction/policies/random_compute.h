// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
//
// RandomCompute, "When fancy eviction fails", 2026: of a few blocks that are drawn the
// one goes whose recompute cost for the time since its last use is least.
//
// For an engine that can fill holes, and even there it fragments prefixes (in the paper
// nine holes a request), which takes many steps to fill: see partial_compute.h. In an
// engine that recomputes from the first missing block, what lies behind a hole is worth
// nothing, and the policy wastes what it keeps.
//
// Where this differs from the paper, and why:
// - Time is in accesses, and one access is added, so that what was used last has a
//   score; all blocks of a request have the same time.
// - A pool no larger than a sample is looked at as a whole. Between equals the order of
//   release decides.
//
// No ghosts.
#pragma once

#include "../cost_units.h"
#include "../policy.h"
#include "../sampled_set.h"

namespace eviction {

class RandomCompute final : public Policy {
 public:
  struct Config {
    std::uint32_t samples = 16;
    std::uint32_t seed = 0;
  };

  RandomCompute(std::uint32_t num_slots, const Config& config)
      : Policy(num_slots), config_(config), blocks_(num_slots), state_(num_slots) {}

  Traits traits() const override { return {.needs_cost = true, .moves_on_hit = true, .fills_holes = true}; }
  std::uint32_t size() const override { return blocks_.size(); }
  std::size_t bytes() const override { return base_bytes() + blocks_.bytes() + state_.size() * sizeof(State); }

  void insert(Slot slot, Key key, const BlockInfo& info) override {
    learn(slot, key);
    state_[slot] = {cost_units(info.cost), static_cast<std::uint32_t>(clock_), false};
    blocks_.add(slot);
  }
  void reinsert(Slot slot) override {
    if (state_[slot].hit) state_[slot].used = static_cast<std::uint32_t>(clock_);
    state_[slot].hit = false;
    blocks_.add(slot);
  }
  void take(Slot slot) override { blocks_.remove(slot); }
  void forget(Slot slot) override {
    if (blocks_.contains(slot)) blocks_.remove(slot);
    state_[slot] = {};
    unlearn(slot);
  }

  std::vector<Slot> peek(std::size_t n) const override {
    return blocks_.peek(n, config_.samples, config_.seed, [this](Slot slot) { return score(slot); });
  }

  void clear() override {
    blocks_.clear();
    state_.assign(state_.size(), {});
    unlearn_all();
    clock_ = 0;
    ghost_hits_ = 0;
  }

  void check() const override {
    blocks_.check();
    for (Slot slot = 0; slot < num_slots(); ++slot) {
      require(knows(slot) || !blocks_.contains(slot), "random-compute: an evictable block has no key");
    }
  }

  void admit(const Admission& request) override {
    clock_ += request.keys.size();
    for (const Slot slot : request.slots) {
      if (slot != kNoSlot) state_[slot].hit = true;
    }
  }

  Snapshot snapshot() const override {
    Snapshot out;
    for (const Slot slot : blocks_.slots()) out.entries.push_back(entry(slot));
    for (Slot slot = 0; slot < num_slots(); ++slot) {  // held, but known
      if (knows(slot) && !blocks_.contains(slot)) out.entries.push_back(entry(slot));
    }
    out.scalars = {static_cast<double>(clock_), static_cast<double>(blocks_.draws())};
    return out;
  }
  // Where the blocks stand among the samples, the copy does not know.
  void adopt_history(const Snapshot& snapshot) override {
    clock_ = adopted_clock_ = static_cast<std::uint64_t>(snapshot.scalars.at(0));
    blocks_.set_draws(static_cast<std::uint64_t>(snapshot.scalars.at(1)));
  }
  void place(Slot slot, const Snapshot::Entry& known, bool evictable) override {
    learn(slot, known.key);
    state_[slot] = {known.value >> 1, static_cast<std::uint32_t>(adopted_clock_) - known.queue, (known.value & 1) != 0};
    if (evictable) blocks_.add(slot);
  }

 protected:
  Slot choose() override {
    const Slot slot = blocks_.lowest(config_.samples, config_.seed, [this](Slot each) { return score(each); });
    if (slot == kNoSlot) return kNoSlot;
    blocks_.remove(slot);
    state_[slot] = {};
    return slot;
  }

 private:
  struct State {
    std::uint32_t cost = 0;  // units
    std::uint32_t used = 0;  // the clock, modulo 2^32
    bool hit = false;        // used since it was queued
  };

  double score(Slot slot) const {
    const std::uint32_t age = static_cast<std::uint32_t>(clock_) - state_[slot].used;
    return state_[slot].cost / (1.0 + age);
  }
  Snapshot::Entry entry(Slot slot) const {
    const State& state = state_[slot];
    return {keys_[slot], static_cast<std::uint32_t>(clock_) - state.used, state.cost << 1 | (state.hit ? 1u : 0u)};
  }

  Config config_;
  SampledSet blocks_;
  std::vector<State> state_;
  std::uint64_t adopted_clock_ = 0;  // requests come and go during a hand-over
  std::uint64_t clock_ = 0;          // accesses
};

}  // namespace eviction
