// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
//
// LFU in constant time, after Shah, Mitra, Matani, "An O(1) algorithm for
// implementing the LFU cache eviction scheme", 2010, with the dynamic ageing of
// Arlitt, Cherkasova, Dilley, Friedrich, Jin, "Evaluating content management
// techniques for Web proxy caches", ACM SIGMETRICS PER 27(4), 2000 (LFU-DA).
//
// A block's rank is its number of uses plus the age that the cache had at the last
// of them; the age is the rank of the block evicted last. So a block that was
// popular once is passed, in time, by those in use now. Without ageing the age stays
// zero, the rank is the number of uses, and old counts live as long as the block.
// Among equals the one released longest ago goes first.
//
// Where this differs from the papers, and why:
// - The ranks of evictable blocks span at most kRanks numbers, because uses are
//   counted up to kRanks - 1. So the lists stand in a ring. 1,023 uses tie with more.
// - The age at a use is that when the block is released after it.
// - A block that comes back without a hit (a pin) keeps its rank, but is not put
//   below the age.
//
// No ghosts: a count is lost with its block. A parent has at least the uses of its
// child and is released after it, so it never goes first.
#pragma once

#include <algorithm>

#include "../policy.h"
#include "../ranked_lists.h"

namespace eviction {

class Lfu final : public Policy {
 public:
  struct Config {
    bool ageing = true;
  };

  Lfu(std::uint32_t num_slots, const Config& config)
      : Policy(num_slots),
        config_(config),
        lists_(links_),
        rank_(num_slots, 0),
        uses_(num_slots, 0),
        state_(num_slots, 0) {}

  Traits traits() const override { return {.prefix_safe = true, .moves_on_hit = true}; }
  std::uint32_t size() const override { return lists_.size(); }
  std::size_t bytes() const override {
    return base_bytes() + lists_.bytes() + rank_.size() * (sizeof(Rank) + sizeof(std::uint16_t) + 1);
  }

  void insert(Slot slot, Key key, const BlockInfo&) override {
    learn(slot, key);
    count(slot);
    reinsert(slot);
  }
  void reinsert(Slot slot) override {
    if (state_[slot] & kHit) rank_[slot] = age_ + uses_[slot];
    enqueue(slot);
    state_[slot] = kQueued;
  }
  void take(Slot slot) override { dequeue(slot); }

  void forget(Slot slot) override {
    if (state_[slot] & kQueued) dequeue(slot);
    reset(slot);
    unlearn(slot);
  }

  std::vector<Slot> peek(std::size_t n) const override {
    std::vector<Slot> out;
    for (std::uint32_t step = 0; step < kRanks && out.size() < std::min<std::size_t>(n, size()); ++step) {
      const SlotList& list = lists_[(age_ + step) % kRanks];
      for (Slot slot = list.front(); slot != kNoSlot && out.size() < n; slot = list.next(slot)) out.push_back(slot);
    }
    return out;
  }

  void clear() override {
    lists_.clear();
    for (Slot slot = 0; slot < num_slots(); ++slot) reset(slot);
    unlearn_all();
    age_ = 0;
    ghost_hits_ = 0;
  }

  void check() const override {
    lists_.check([this](std::uint32_t at, Slot slot) {
      require(rank_[slot] % kRanks == at, "lfu: wrong list");
      require(rank_[slot] >= age_ && rank_[slot] - age_ < kRanks, "lfu: a rank left the ring");
      require((state_[slot] & kQueued) && knows(slot), "lfu: an evictable block has no key");
      require(uses_[slot] > 0, "lfu: an evictable block was never used");
    });
    require(std::count_if(state_.begin(), state_.end(), [](std::uint8_t state) { return state & kQueued; }) == size(),
            "lfu: an evictable block is in no list");
    require(config_.ageing || age_ == 0, "lfu: it has aged");
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
      if (knows(slot) && !(state_[slot] & kQueued)) out.entries.push_back(entry(slot));
    }
    out.scalars = {static_cast<double>(age_)};
    return out;
  }
  void adopt_history(const Snapshot& snapshot) override { age_ = static_cast<Rank>(snapshot.scalars.at(0)); }
  void place(Slot slot, const Snapshot::Entry& known, bool evictable) override {
    learn(slot, known.key);
    rank_[slot] = age_ + known.queue;
    uses_[slot] = static_cast<std::uint16_t>(known.value / 2);
    state_[slot] = (known.value & 1) ? kHit : 0;
    if (!evictable) return;
    enqueue(slot);
    state_[slot] |= kQueued;
  }

 protected:
  Slot choose() override {
    if (size() == 0) return kNoSlot;
    const Slot slot = lists_[lists_.lowest(static_cast<std::uint32_t>(age_ % kRanks))].front();
    dequeue(slot);
    if (config_.ageing) age_ = rank_[slot];
    reset(slot);
    return slot;
  }

 private:
  using Rank = std::uint64_t;
  static constexpr std::uint32_t kRanks = 1024;
  static constexpr std::uint8_t kHit = 1;     // used since it was queued
  static constexpr std::uint8_t kQueued = 2;  // stands in a list

  void count(Slot slot) {
    if (uses_[slot] < kRanks - 1) ++uses_[slot];
    state_[slot] |= kHit;
  }
  void reset(Slot slot) {
    rank_[slot] = 0;
    uses_[slot] = 0;
    state_[slot] = 0;
  }
  Snapshot::Entry entry(Slot slot) const {
    return {keys_[slot], static_cast<std::uint32_t>(std::max(rank_[slot], age_) - age_),
            2u * uses_[slot] + ((state_[slot] & kHit) ? 1u : 0u)};
  }
  void enqueue(Slot slot) {
    rank_[slot] = std::max(rank_[slot], age_);
    lists_.push_back(static_cast<std::uint32_t>(rank_[slot] % kRanks), slot);
  }
  void dequeue(Slot slot) {
    lists_.erase(static_cast<std::uint32_t>(rank_[slot] % kRanks), slot);
    state_[slot] &= static_cast<std::uint8_t>(~kQueued);
  }

  Config config_;
  RankedLists<kRanks> lists_;  // by rank, modulo kRanks
  std::vector<Rank> rank_;
  std::vector<std::uint16_t> uses_;
  std::vector<std::uint8_t> state_;
  Rank age_ = 0;
};

}  // namespace eviction
