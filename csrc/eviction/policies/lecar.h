// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
//
// LeCaR: Vietri, Rodriguez, Martinez, Lyons, Liu, Rangaswami, Zhao, Narasimhan,
// "Driving cache replacement with ML-based LeCaR", HotStorage'18. Two experts, LRU and
// LFU, rank the same blocks; which of them names the victim is drawn by their weights.
// The victim is remembered in that expert's history. When it is asked for again, the
// other expert's weight grows, by more the sooner: regret is discount^(t / N) after t
// accesses, N being the size of the pool.
//
// Where this differs from the paper, and why:
// - When both name the same block there is no regret, and it is not remembered.
// - A weight stays between 0.01 and 0.99: an expert that is never asked cannot recover.
// - The histories have `ghost_ratio` / 2 of the pool each, in the paper a whole pool's
//   worth: a shadow may cost no more than 64 bytes a block.
// - An access is a block of an admitted request. A ghost that is asked for has its
//   effect then, and gives its number of uses to the block when that is released.
// - Uses are counted up to 1,023, once for a request and block, also while it is in use.
// - Draws are a function of the seed and the number of evictions: no other state.
// - A hand-over knows the order of ghosts, not their times, which are spread evenly
//   over the last N accesses, nor their uses.
#pragma once

#include <algorithm>
#include <cmath>

#include "../ghost_list.h"
#include "../policy.h"
#include "../ranked_lists.h"
#include "../splitmix.h"

namespace eviction {

class LeCaR final : public Policy {
 public:
  struct Config {
    double learning_rate = 0.45;  // (0, 10]
    double discount = 0.005;      // of regret, over as many accesses as the pool has blocks, (0, 1]
    double ghost_ratio = 0.5;     // both histories, of the pool, [0, 8]
    std::uint32_t seed = 0;
  };

  LeCaR(std::uint32_t num_slots, const Config& config)
      : Policy(num_slots),
        config_(config),
        decay_(std::log(config.discount) / num_slots),
        lru_(links_),
        use_links_(num_slots),
        by_uses_(use_links_),
        uses_(num_slots, 0),
        queued_(num_slots, 0),
        history_limit_(static_cast<std::size_t>(config.ghost_ratio * num_slots / 2)),
        ghost_store_(2 * history_limit_),
        of_lru_(ghost_store_, 0),
        of_lfu_(ghost_store_, 1),
        ghosts_(ghost_store_.capacity()) {}

  Traits traits() const override { return {.moves_on_hit = true}; }
  std::uint32_t size() const override { return lru_.size(); }
  std::size_t num_ghosts() const override { return ghost_store_.size(); }
  std::size_t ghost_limit() const override { return ghost_store_.capacity(); }
  std::size_t bytes() const override {
    return base_bytes() + uses_.size() * (2 * sizeof(Slot) + sizeof(Uses) + 1) + by_uses_.bytes() +
           ghost_store_.bytes() + ghosts_.size() * sizeof(Ghost);
  }

  void insert(Slot slot, Key key, const BlockInfo&) override {
    learn(slot, key);
    if (const GhostStore::Ghost ghost = ghost_store_.find(key)) {
      GhostList& list = history_of(ghost);
      if (!list.expected(ghost)) regret(ghost);
      uses_[slot] = std::min<Uses>(kMostUses, uses_[slot] + ghosts_[ghost.node].uses);
      list.erase(ghost);
    }
    count(slot);
    enqueue(slot);
  }
  void reinsert(Slot slot) override { enqueue(slot); }
  void take(Slot slot) override { dequeue(slot); }

  void forget(Slot slot) override {
    if (queued_[slot]) dequeue(slot);
    uses_[slot] = 0;
    unlearn(slot);
  }
  void disown(Key key) override {
    if (const GhostStore::Ghost ghost = ghost_store_.find(key)) history_of(ghost).erase(ghost);
  }
  void number_keys(Key last) override { ghost_store_.number_keys(last); }
  void prefetch(Key key, Slot) const override { ghost_store_.prefetch(key); }

  std::vector<Slot> peek(std::size_t n) const override {
    std::vector<Slot> out;
    std::vector<bool> gone(num_slots(), false);
    Slot oldest = lru_.front();
    std::uint32_t uses = 0;
    Slot rarest = kNoSlot;
    for (std::uint64_t draws = draws_; out.size() < std::min<std::size_t>(n, size()); ++draws) {
      while (gone[oldest]) oldest = lru_.next(oldest);
      while (rarest == kNoSlot || gone[rarest]) {
        rarest = rarest == kNoSlot ? by_uses_[++uses].front() : by_uses_[uses].next(rarest);
      }
      out.push_back(split_mix(config_.seed, draws) < weight_ ? oldest : rarest);
      gone[out.back()] = true;
    }
    return out;
  }

  void clear() override {
    lru_.clear();
    by_uses_.clear();
    of_lru_.clear();
    of_lfu_.clear();
    uses_.assign(uses_.size(), 0);
    queued_.assign(queued_.size(), 0);
    unlearn_all();
    weight_ = 0.5;
    clock_ = draws_ = 0;
    ghost_hits_ = 0;
  }

  void check() const override {
    lru_.check([this](Slot slot) { require(queued_[slot] && knows(slot), "lecar: an evictable block has no key"); });
    by_uses_.check([this](std::uint32_t uses, Slot slot) {
      require(queued_[slot] && uses_[slot] == uses && uses > 0, "lecar: wrong list");
    });
    require(by_uses_.size() == size(), "lecar: the experts rank different blocks");
    require(std::count(queued_.begin(), queued_.end(), 1) == size(), "lecar: an evictable block is in no list");
    of_lru_.check();
    of_lfu_.check();
    require(std::max(of_lru_.size(), of_lfu_.size()) <= history_limit_, "lecar: a history is too long");
    require(weight_ >= kLeast && weight_ <= 1 - kLeast, "lecar: a weight left its range");
  }

  void admit(const Admission& request) override {
    for (std::size_t i = 0; i < request.keys.size(); ++i) {
      ++clock_;
      const Slot slot = request.slots[i];
      if (slot == kNoSlot) {
        const GhostStore::Ghost ghost = ghost_store_.find(request.keys[i]);
        if (!ghost) continue;
        ++ghost_hits_;
        regret(ghost);
        history_of(ghost).expect(ghost);
      } else if (queued_[slot]) {  // in caches without pins
        by_uses_.erase(uses_[slot], slot);
        count(slot);
        by_uses_.push_back(uses_[slot], slot);
      } else {
        count(slot);
      }
    }
  }

  Snapshot snapshot() const override {
    Snapshot out;
    for (Slot slot = lru_.front(); slot != kNoSlot; slot = lru_.next(slot)) out.entries.push_back(entry(slot));
    for (Slot slot = 0; slot < num_slots(); ++slot) {  // held, but known
      if (knows(slot) && !queued_[slot]) out.entries.push_back(entry(slot));
    }
    out.ghosts = {of_lru_.keys(), of_lfu_.keys()};
    out.scalars = {weight_, static_cast<double>(clock_), static_cast<double>(draws_)};
    return out;
  }
  void adopt_history(const Snapshot& snapshot) override {
    weight_ = snapshot.scalars.at(0);
    clock_ = static_cast<std::uint64_t>(snapshot.scalars.at(1));
    draws_ = static_cast<std::uint64_t>(snapshot.scalars.at(2));
    for (std::size_t i = 0; i < 2; ++i) {
      const std::vector<Key>& keys = snapshot.ghosts.at(i);
      for (std::size_t at = 0; at < keys.size(); ++at) {
        const std::uint64_t age = std::uint64_t{num_slots()} * (keys.size() - at) / keys.size();
        remember(i == 0 ? of_lru_ : of_lfu_, keys[at], {static_cast<std::uint32_t>(clock_ - age), 0});
      }
    }
  }
  void place(Slot slot, const Snapshot::Entry& known, bool evictable) override {
    learn(slot, known.key);
    disown(known.key);
    uses_[slot] = static_cast<Uses>(known.value);
    if (evictable) enqueue(slot);
  }

 protected:
  Slot choose() override {
    if (size() == 0) return kNoSlot;
    const Slot oldest = lru_.front();
    const Slot rarest = by_uses_[by_uses_.lowest()].front();
    const bool by_lru = split_mix(config_.seed, draws_++) < weight_;
    const Slot slot = by_lru ? oldest : rarest;
    disown(keys_[slot]);  // of a stale block, evicted from another slot since
    if (oldest != rarest) {
      remember(by_lru ? of_lru_ : of_lfu_, keys_[slot], {static_cast<std::uint32_t>(clock_), uses_[slot]});
    }
    dequeue(slot);
    uses_[slot] = 0;
    return slot;
  }

 private:
  using Uses = std::uint16_t;
  static constexpr Uses kMostUses = 1023;
  static constexpr double kLeast = 0.01;  // weight
  struct Ghost {
    std::uint32_t evicted = 0;  // the clock, modulo 2^32
    std::uint32_t uses = 0;
  };

  GhostList& history_of(GhostStore::Ghost ghost) { return of_lru_.owns(ghost) ? of_lru_ : of_lfu_; }
  void regret(GhostStore::Ghost ghost) {
    const std::uint32_t age = static_cast<std::uint32_t>(clock_) - ghosts_[ghost.node].evicted;
    const double gain = std::exp(config_.learning_rate * std::exp(decay_ * age));
    const double lru = of_lru_.owns(ghost) ? weight_ : weight_ * gain;
    const double lfu = of_lru_.owns(ghost) ? (1 - weight_) * gain : 1 - weight_;
    weight_ = std::clamp(lru / (lru + lfu), kLeast, 1 - kLeast);
  }
  void remember(GhostList& history, Key key, Ghost ghost) {
    if (history_limit_ == 0) return;
    history.trim(history_limit_ - 1);
    history.add(key);
    ghosts_[history.newest().node] = ghost;
  }
  void count(Slot slot) {
    if (uses_[slot] < kMostUses) ++uses_[slot];
  }
  Snapshot::Entry entry(Slot slot) const { return {keys_[slot], 0, uses_[slot]}; }
  void enqueue(Slot slot) {
    lru_.push_back(slot);
    by_uses_.push_back(uses_[slot], slot);
    queued_[slot] = 1;
  }
  void dequeue(Slot slot) {
    lru_.erase(slot);
    by_uses_.erase(uses_[slot], slot);
    queued_[slot] = 0;
  }

  Config config_;
  double decay_;  // logarithm of what an access leaves of a regret
  SlotList lru_;
  SlotLinks use_links_;
  RankedLists<kMostUses + 1> by_uses_;
  std::vector<Uses> uses_;
  std::vector<std::uint8_t> queued_;
  std::size_t history_limit_;  // of each
  GhostStore ghost_store_;
  GhostList of_lru_;
  GhostList of_lfu_;
  std::vector<Ghost> ghosts_;  // by node of the store
  double weight_ = 0.5;        // of LRU; that of LFU is the rest
  std::uint64_t clock_ = 0;    // accesses
  std::uint64_t draws_ = 0;    // evictions
};

}  // namespace eviction
