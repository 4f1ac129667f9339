// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
//
// Workload-aware eviction: Wang et al., "KVCache cache in the wild: characterizing and
// optimizing KVCache cache at a large cloud provider", USENIX ATC'25. Requests fall into
// categories whose blocks return after times that follow an exponential, each its own.
// A block's priority is the probability that it returns within the next window; the
// lowest goes. Within a category that is the one released longest ago, so only the
// heads of the categories are compared.
//
// Where this differs from the paper, and why:
// - Its categories are kinds of requests and their turn, which the operator knows. Here
//   they are what the engine sees: the turn of the conversation (1, 2, 3 to 4, 5 and
//   more) in which a block was last used, and whether it is shared: hit more often than
//   its own conversation can have hit it. A request is one turn after the deepest block
//   that it hits.
// - Times are in accesses and not in seconds, so that a busy hour and a quiet one look
//   alike; the window is `horizon` times the pool's size.
// - The probability that a block returns at all is fitted too, from releases and
//   returns, and both fits fade by half every two pools' worth of releases. Blocks that
//   return after they were evicted count, as ghosts.
// - Between equal priorities the paper takes the deeper block; here the order of release
//   does that within a category, and the category's number between them.
// - A hand-over does not know the times and categories of ghosts, and learns nothing of
//   them.
//
// Ghosts: `ghost_ratio` times the pool.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <unordered_map>

#include "../ghost_list.h"
#include "../policy.h"
#include "../queue_set.h"

namespace eviction {

class WorkloadAware final : public Policy {
 public:
  struct Config {
    double horizon = 1.0;      // in pools' worth of accesses, [0.01, 100]
    double ghost_ratio = 0.5;  // of the pool, [0, 8]
  };

  WorkloadAware(std::uint32_t num_slots, const Config& config)
      : Policy(num_slots),
        horizon_(config.horizon * std::max(1u, num_slots)),
        queues_(links_),
        state_(num_slots),
        ghost_store_(static_cast<std::size_t>(config.ghost_ratio * num_slots)),
        ghosts_(ghost_store_, 0),
        ghost_state_(ghost_store_.capacity()) {}

  Traits traits() const override { return {.needs_structure = true, .moves_on_hit = true}; }
  std::uint32_t size() const override { return queues_.size(); }
  std::size_t num_ghosts() const override { return ghosts_.size(); }
  std::size_t ghost_limit() const override { return ghost_store_.capacity(); }
  std::size_t bytes() const override {
    return base_bytes() + queues_.bytes() + state_.size() * sizeof(State) + ghost_store_.bytes() +
           ghost_state_.size() * sizeof(Ghost);
  }

  void insert(Slot slot, Key key, const BlockInfo&) override {
    learn(slot, key);
    ghosts_.erase(key);
    state_[slot].turn = turn_;
    if (!(queues_.note(slot) & kHit)) state_[slot].category = category(turn_, false);
    enqueue(slot, !adopting_);
  }
  void reinsert(Slot slot) override { enqueue(slot, true); }
  void take(Slot slot) override { queues_.dequeue(slot); }

  void forget(Slot slot) override {
    queues_.drop(slot);
    state_[slot] = {};
    unlearn(slot);
  }
  void disown(Key key) override { ghosts_.erase(key); }
  void prefetch(Key key, Slot) const override { ghost_store_.prefetch(key); }

  std::vector<Slot> peek(std::size_t n) const override {
    std::vector<Slot> out;
    std::array<Slot, kCategories> heads;
    for (std::uint8_t each = 0; each < kCategories; ++each) heads[each] = queues_[each].front();
    while (out.size() < n) {
      const std::uint8_t lowest = least_probable(heads);
      if (lowest == kCategories) break;
      out.push_back(heads[lowest]);
      heads[lowest] = queues_[lowest].next(heads[lowest]);
    }
    return out;
  }

  void clear() override {
    queues_.clear();
    ghosts_.clear();
    state_.assign(state_.size(), {});
    fits_.fill({});
    turns_.clear();
    unlearn_all();
    adopting_ = false;
    turn_ = 1;
    clock_ = releases_ = 0;
    ghost_hits_ = 0;
  }

  void check() const override {
    queues_.check([this](Slot slot) { return knows(slot); });
    ghosts_.check();
    require(turns_.size() <= num_slots(), "workload-aware: more requests than blocks");
  }

  void admit(const Admission& request) override {
    adopting_ = false;
    std::uint8_t turn = 1;
    for (const Slot slot : request.slots) {
      if (slot != kNoSlot) turn = later(state_[slot].turn);
    }
    const std::uint64_t now = clock_ + request.keys.size();
    for (std::size_t i = 0; i < request.keys.size(); ++i) {
      const Slot slot = request.slots[i];
      if (slot != kNoSlot) {
        hit(slot, turn);
      } else if (const GhostStore::Ghost ghost = ghost_store_.find(request.keys[i])) {
        ++ghost_hits_;
        const Ghost& was = ghost_state_[ghost.node];
        if (!ghosts_.expected(ghost) && was.category < kCategories) returned(was.category, was.released);
        ghosts_.expect(ghost);
      }
    }
    clock_ = now;
    if (turn == 1) return;  // as who is not known
    if (turns_.size() == num_slots()) turns_.clear();
    turns_[request.serial] = turn;
  }
  // Its blocks come next.
  void finish(Serial serial, std::span<const Key>, double) override {
    adopting_ = false;
    const auto found = turns_.find(serial);
    turn_ = found == turns_.end() ? 1 : found->second;
    if (found != turns_.end()) turns_.erase(found);
  }

  Snapshot snapshot() const override {
    Snapshot out;
    queues_.each([this](Slot slot) { return knows(slot); }, [&](Slot slot) { out.entries.push_back(entry(slot)); });
    out.ghosts = {ghosts_.keys()};
    out.scalars = {static_cast<double>(clock_), static_cast<double>(releases_), static_cast<double>(turn_)};
    for (const Fit& fit : fits_) out.scalars.insert(out.scalars.end(), {fit.releases, fit.returns, fit.times});
    return out;
  }
  void adopt_history(const Snapshot& snapshot) override {
    adopting_ = true;
    clock_ = adopted_clock_ = static_cast<std::uint64_t>(snapshot.scalars.at(0));
    releases_ = static_cast<std::uint64_t>(snapshot.scalars.at(1));
    turn_ = static_cast<std::uint8_t>(snapshot.scalars.at(2));
    for (std::size_t i = 0; i < kCategories; ++i) {
      fits_[i] = {snapshot.scalars.at(3 + 3 * i), snapshot.scalars.at(4 + 3 * i), snapshot.scalars.at(5 + 3 * i)};
    }
    for (const Key key : snapshot.ghosts.at(0)) remember(key, {});
  }
  void place(Slot slot, const Snapshot::Entry& known, bool evictable) override {
    learn(slot, known.key);
    ghosts_.erase(known.key);
    state_[slot] = {static_cast<std::uint32_t>(adopted_clock_) - known.value,
                    static_cast<std::uint8_t>(known.queue & 15), static_cast<std::uint8_t>(known.queue >> 4 & 15),
                    static_cast<std::uint8_t>(known.queue >> 8 & 15)};
    queues_.assign(slot, state_[slot].category);
    queues_.set_note(slot, static_cast<std::uint8_t>(known.queue >> 12));
    if (evictable) queues_.enqueue(slot);
  }

 protected:
  Slot choose() override {
    std::array<Slot, kCategories> heads;
    for (std::uint8_t each = 0; each < kCategories; ++each) heads[each] = queues_[each].front();
    const std::uint8_t lowest = least_probable(heads);
    if (lowest == kCategories) return kNoSlot;
    const Slot slot = heads[lowest];
    const State& state = state_[slot];
    ghosts_.erase(keys_[slot]);  // of a stale block, evicted from another slot since
    remember(keys_[slot], {state.released, queues_.note(slot) & kWaits ? state.category : kCategories});
    queues_.drop(slot);
    state_[slot] = {};
    return slot;
  }

 private:
  static constexpr std::uint8_t kCategories = 8;
  static constexpr std::uint8_t kMost = 15;  // turns, hits
  static constexpr std::uint8_t kWaits = 1;  // released, and not hit since
  static constexpr std::uint8_t kHit = 2;    // hit before its first release
  struct State {
    std::uint32_t released = 0;  // the clock, modulo 2^32
    std::uint8_t category = 0;
    std::uint8_t turn = 1;  // in which it was computed
    std::uint8_t hits = 0;
  };
  struct Ghost {
    std::uint32_t released = 0;
    std::uint8_t category = kCategories;  // of which nothing is known
  };
  struct Fit {
    double releases = 0;
    double returns = 0;
    double times = 0;  // from release to return, summed, accesses
  };

  static std::uint8_t later(std::uint8_t turn) { return std::min<std::uint8_t>(kMost, turn + 1); }
  static std::uint8_t category(std::uint8_t turn, bool shared) {
    const std::uint8_t late = turn <= 2 ? turn - 1 : turn <= 4 ? 2 : 3;
    return static_cast<std::uint8_t>(late + (shared ? 4 : 0));
  }
  // `counts`: it was released now, and whether it returns will be seen.
  void enqueue(Slot slot, bool counts) {
    queues_.assign(slot, state_[slot].category);
    queues_.set_note(slot, counts ? kWaits : 0);
    queues_.enqueue(slot);
    state_[slot].released = static_cast<std::uint32_t>(clock_);
    if (counts) released(state_[slot].category);
  }
  void hit(Slot slot, std::uint8_t turn) {
    State& state = state_[slot];
    if (queues_.note(slot) & kWaits) returned(state.category, state.released);
    queues_.set_note(slot, kHit);
    if (state.hits < kMost) ++state.hits;
    // One hit for each turn since it was computed is its own conversation's.
    state.category = category(turn, state.hits > std::max(0, turn - state.turn));
  }
  void returned(std::uint8_t category, std::uint32_t released) {
    fits_[category].returns += 1;
    fits_[category].times += static_cast<std::uint32_t>(clock_) - released;
  }
  void released(std::uint8_t category) {
    fits_[category].releases += 1;
    if (++releases_ < 2 * std::uint64_t{num_slots()}) return;
    releases_ = 0;
    for (Fit& fit : fits_) fit = {fit.releases / 2, fit.returns / 2, fit.times / 2};
  }
  // That a block of the category returns within the horizon.
  double probability(std::uint8_t category, std::uint32_t released) const {
    const Fit& fit = fits_[category];
    const double rate = (fit.returns + 1) / (fit.times + horizon_);
    const double ever = (fit.returns + 1) / (fit.releases + 2);
    const double age = static_cast<std::uint32_t>(clock_) - released;
    return ever * (std::exp(-rate * age) - std::exp(-rate * (age + horizon_)));
  }
  std::uint8_t least_probable(const std::array<Slot, kCategories>& heads) const {
    std::uint8_t lowest = kCategories;
    double least = 0;
    for (std::uint8_t each = 0; each < kCategories; ++each) {
      if (heads[each] == kNoSlot) continue;
      const double its = probability(each, state_[heads[each]].released);
      if (lowest != kCategories && its >= least) continue;
      lowest = each;
      least = its;
    }
    return lowest;
  }
  void remember(Key key, Ghost ghost) {
    if (ghost_store_.capacity() == 0) return;
    ghosts_.remember(key, ghost_store_.capacity());
    ghost_state_[ghosts_.newest().node] = ghost;
  }
  Snapshot::Entry entry(Slot slot) const {
    const State& state = state_[slot];
    return {keys_[slot],
            static_cast<std::uint32_t>(state.category | state.turn << 4 | state.hits << 8 | queues_.note(slot) << 12),
            static_cast<std::uint32_t>(clock_) - state.released};
  }

  double horizon_;  // accesses
  QueueSet<kCategories> queues_;
  std::vector<State> state_;
  GhostStore ghost_store_;
  GhostList ghosts_;
  std::vector<Ghost> ghost_state_;  // by node of the store
  std::array<Fit, kCategories> fits_{};
  std::unordered_map<Serial, std::uint8_t> turns_;  // of running requests beyond their first
  std::uint8_t turn_ = 1;                           // of the request that ended last
  bool adopting_ = false;                           // a hand-over: what enters was not released now
  std::uint64_t adopted_clock_ = 0;                 // requests come and go during a hand-over
  std::uint64_t clock_ = 0;                         // accesses
  std::uint64_t releases_ = 0;                      // since the fits last faded
};

}  // namespace eviction
