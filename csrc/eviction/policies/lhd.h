// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
//
// LHD: Beckmann, Chen, Cidon, "LHD: improving cache hit rate by maximizing hit density",
// NSDI'18. A block's hit density is the hits that it may be expected to bring, for the
// time for which it will stay: learnt from counts of hits and evictions by age, for
// classes of blocks, which are told apart by the ages at their last two hits. Of a
// sample the block of lowest density goes. Counts of before fade by a tenth each period.
//
// Where this differs from the paper, and why:
// - Ages are in eighths of the pool's size (in accesses), up to 32 pools, and a period is
//   eight pools' worth of accesses. The authors' code has fixed periods of 2^20 accesses
//   and 20,000 ages, whose unit it guesses after five of them: on a short trace it never
//   learns.
// - All blocks are of one application, and of one size.
// - A sample is 32 blocks; a pool no larger than that is looked at as a whole.
// - The authors exempt some blocks from eviction, to learn of late hits, and look at the
//   latest bad admissions each time. Here no block is exempt, and all have one chance.
// - Age is counted from the last access, and all blocks of a request have the same: the
//   order of release decides between them.
//
// No ghosts. The counts take 60 KiB, whatever the pool.
#pragma once

#include <algorithm>
#include <array>
#include <bit>

#include "../policy.h"
#include "../sampled_set.h"

namespace eviction {

class Lhd final : public Policy {
 public:
  struct Config {
    std::uint32_t samples = 32;
    std::uint32_t seed = 0;
  };

  Lhd(std::uint32_t num_slots, const Config& config)
      : Policy(num_slots),
        config_(config),
        unit_(std::max(1u, num_slots / 8)),
        blocks_(num_slots),
        state_(num_slots),
        model_(kClasses) {
    forget_all();
  }

  Traits traits() const override { return {.moves_on_hit = true}; }
  std::uint32_t size() const override { return blocks_.size(); }
  std::size_t bytes() const override {
    return base_bytes() + blocks_.bytes() + state_.size() * sizeof(State) + model_.size() * sizeof(model_[0]);
  }

  void insert(Slot slot, Key key, const BlockInfo&) override {
    learn(slot, key);
    state_[slot] = {static_cast<std::uint32_t>(clock_), 0, kAges};
    blocks_.add(slot);
  }
  void reinsert(Slot slot) override { blocks_.add(slot); }
  void take(Slot slot) override { blocks_.remove(slot); }

  void forget(Slot slot) override {
    if (blocks_.contains(slot)) blocks_.remove(slot);
    unlearn(slot);
  }

  std::vector<Slot> peek(std::size_t n) const override {
    return blocks_.peek(n, config_.samples, config_.seed, [this](Slot slot) { return density(slot); });
  }

  void clear() override {
    blocks_.clear();
    unlearn_all();
    forget_all();
    ghost_hits_ = 0;
  }

  void check() const override {
    blocks_.check();
    for (Slot slot = 0; slot < num_slots(); ++slot) {
      require(knows(slot) || !blocks_.contains(slot), "lhd: an evictable block has no key");
    }
  }

  void admit(const Admission& request) override {
    const std::uint64_t now = clock_ + request.keys.size();
    for (const Slot slot : request.slots) {
      if (slot == kNoSlot || !knows(slot)) continue;
      State& state = state_[slot];
      const std::uint16_t age = age_of(state);
      model_[class_of(state)].hits[age] += 1;
      state = {static_cast<std::uint32_t>(now), age, state.last_hit_age};
    }
    clock_ = now;
    if (clock_ >= next_period_) learn_densities();
  }

  Snapshot snapshot() const override {
    Snapshot out;
    for (const Slot slot : blocks_.slots()) out.entries.push_back(entry(slot));
    for (Slot slot = 0; slot < num_slots(); ++slot) {  // held, but known
      if (knows(slot) && !blocks_.contains(slot)) out.entries.push_back(entry(slot));
    }
    out.scalars = {static_cast<double>(clock_), static_cast<double>(next_period_),
                   static_cast<double>(blocks_.draws())};
    for (const Class& one : model_) {
      for (const Ages* ages : {&one.hits, &one.evictions, &one.density}) {
        out.scalars.insert(out.scalars.end(), ages->begin(), ages->end());
      }
    }
    return out;
  }
  // Where the blocks stand among the samples, the copy does not know.
  void adopt_history(const Snapshot& snapshot) override {
    clock_ = adopted_clock_ = static_cast<std::uint64_t>(snapshot.scalars.at(0));
    next_period_ = static_cast<std::uint64_t>(snapshot.scalars.at(1));
    blocks_.set_draws(static_cast<std::uint64_t>(snapshot.scalars.at(2)));
    auto from = snapshot.scalars.begin() + 3;
    for (Class& one : model_) {
      for (Ages* ages : {&one.hits, &one.evictions, &one.density}) {
        std::copy_n(from, kAges, ages->begin());
        from += kAges;
      }
    }
  }
  void place(Slot slot, const Snapshot::Entry& known, bool evictable) override {
    learn(slot, known.key);
    state_[slot] = {static_cast<std::uint32_t>(adopted_clock_) - known.queue,
                    static_cast<std::uint16_t>(known.value & 0xffff), static_cast<std::uint16_t>(known.value >> 16)};
    if (evictable) blocks_.add(slot);
  }

 protected:
  Slot choose() override {
    const Slot slot = blocks_.lowest(config_.samples, config_.seed, [this](Slot each) { return density(each); });
    if (slot == kNoSlot) return kNoSlot;
    model_[class_of(state_[slot])].evictions[age_of(state_[slot])] += 1;
    blocks_.remove(slot);
    return slot;
  }

 private:
  static constexpr std::uint16_t kAges = 256;
  static constexpr std::size_t kClasses = 10;
  static constexpr double kKept = 0.9;  // of the counts, from period to period
  using Ages = std::array<double, kAges>;
  struct Class {
    Ages hits;
    Ages evictions;
    Ages density;
  };
  struct State {
    std::uint32_t accessed = 0;  // the clock, modulo 2^32
    std::uint16_t last_hit_age = 0;
    std::uint16_t hit_age_before = 0;  // kAges where there was none
  };

  std::uint16_t age_of(const State& state) const {
    const std::uint32_t age = (static_cast<std::uint32_t>(clock_) - state.accessed) / unit_;
    return static_cast<std::uint16_t>(std::min<std::uint32_t>(age, kAges - 1));
  }
  // 0 for blocks that were not hit twice or only late; each next one for half the age.
  static std::size_t class_of(const State& state) {
    const unsigned ages = unsigned{state.last_hit_age} + state.hit_age_before;
    return ages >= kAges ? 0 : kClasses - 1 - static_cast<std::size_t>(std::bit_width(ages));
  }
  double density(Slot slot) const { return model_[class_of(state_[slot])].density[age_of(state_[slot])]; }
  Snapshot::Entry entry(Slot slot) const {
    const State& state = state_[slot];
    return {keys_[slot], static_cast<std::uint32_t>(clock_) - state.accessed,
            std::uint32_t{state.hit_age_before} << 16 | state.last_hit_age};
  }
  // Recently used is good, and often used better, until more is known.
  void forget_all() {
    for (std::size_t c = 0; c < kClasses; ++c) {
      model_[c].hits.fill(0);
      model_[c].evictions.fill(0);
      for (std::size_t age = 0; age < kAges; ++age) {
        model_[c].density[age] = static_cast<double>(c + 1) / static_cast<double>(age + 1);
      }
    }
    clock_ = 0;
    next_period_ = period();
  }
  std::uint64_t period() const { return 8 * std::uint64_t{std::max(1u, num_slots())}; }
  void learn_densities() {
    next_period_ = clock_ + period();
    for (Class& one : model_) {
      double hits = 0;
      double events = 0;    // at this age and later
      double lifetime = 0;  // of those, from this age on
      for (std::size_t age = kAges; age-- > 0;) {
        one.hits[age] *= kKept;
        one.evictions[age] *= kKept;
        hits += one.hits[age];
        events += one.hits[age] + one.evictions[age];
        lifetime += events;
        one.density[age] = events > 1e-5 ? hits / lifetime : 0.0;
      }
    }
  }

  Config config_;
  std::uint32_t unit_;  // of ages, accesses
  SampledSet blocks_;
  std::vector<State> state_;
  std::vector<Class> model_;
  std::uint64_t adopted_clock_ = 0;  // requests come and go during a hand-over
  std::uint64_t clock_ = 0;          // accesses
  std::uint64_t next_period_ = 0;
};

}  // namespace eviction
