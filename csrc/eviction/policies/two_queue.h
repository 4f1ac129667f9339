// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
//
// 2Q, the full version: Johnson and Shasha, "2Q: a low overhead high performance
// buffer management replacement algorithm", VLDB'94. New blocks enter a FIFO queue,
// A1in; what leaves it is remembered in A1out; a ghost of A1out that is asked for
// has been used again after a while, and enters Am, an LRU queue. Hits in A1in
// count for nothing: they are the same burst of interest that brought the block.
//
// Where this differs from the paper, and why:
// - A1in's share is one of the *evictable* blocks; requests hold a varying part of
//   the pool.
// - A block that a request held comes back to the end of the queue it was in, also
//   of A1in, where in the paper a hit moves nothing. A block in use cannot stand in
//   a queue. A hit on a block that is not in use, which happens in a cache without
//   pins only, moves it to the end of Am and leaves it where it is in A1in.
// - A ghost that is asked for leaves A1out when the recomputed block is released,
//   and is renewed until then.
//
// Ghosts: `ghost_ratio` times the pool.
#pragma once

#include "../ghost_list.h"
#include "../policy.h"

namespace eviction {

class TwoQueue final : public Policy {
 public:
  struct Config {
    double in_ratio = 0.25;    // A1in, of the evictable blocks, (0, 1)
    double ghost_ratio = 0.5;  // A1out, of the pool, [0, 8]
  };

  TwoQueue(std::uint32_t num_slots, const Config& config)
      : Policy(num_slots),
        config_(config),
        in_(links_),
        main_(links_),
        state_(num_slots, 0),
        ghost_store_(static_cast<std::size_t>(config.ghost_ratio * num_slots)),
        out_(ghost_store_, 0) {}

  Traits traits() const override { return {}; }
  std::uint32_t size() const override { return in_.size() + main_.size(); }
  std::size_t num_ghosts() const override { return out_.size(); }
  std::size_t ghost_limit() const override { return ghost_store_.capacity(); }
  std::size_t bytes() const override { return base_bytes() + state_.size() + ghost_store_.bytes(); }

  void insert(Slot slot, Key key, const BlockInfo&) override {
    learn(slot, key);
    state_[slot] = out_.erase(key) ? kMain : 0;
    enqueue(slot);
  }
  void reinsert(Slot slot) override { enqueue(slot); }
  void take(Slot slot) override { dequeue(slot); }

  void forget(Slot slot) override {
    if (state_[slot] & kQueued) dequeue(slot);
    state_[slot] = 0;
    unlearn(slot);
  }
  void disown(Key key) override { out_.erase(key); }
  void number_keys(Key last) override { ghost_store_.number_keys(last); }
  void prefetch(Key key) const override { ghost_store_.prefetch(key); }

  std::vector<Slot> peek(std::size_t n) const override {
    std::vector<Slot> victims;
    Slot in = in_.front();
    Slot main = main_.front();
    std::size_t in_size = in_.size();
    std::size_t main_size = main_.size();
    while (victims.size() < n && in_size + main_size > 0) {
      const bool first = evict_in(in_size, main_size);
      Slot& next = first ? in : main;
      victims.push_back(next);
      next = (first ? in_ : main_).next(next);
      --(first ? in_size : main_size);
    }
    return victims;
  }

  void clear() override {
    in_.clear();
    main_.clear();
    out_.clear();
    state_.assign(state_.size(), 0);
    unlearn_all();
    ghost_hits_ = 0;
  }

  void check() const override {
    in_.check([this](Slot slot) { require(state_[slot] == kQueued, "2q: wrong queue"); });
    main_.check([this](Slot slot) { require(state_[slot] == (kMain | kQueued), "2q: wrong queue"); });
    std::uint32_t queued = 0;
    for (Slot slot = 0; slot < num_slots(); ++slot) {
      if (!(state_[slot] & kQueued)) continue;
      ++queued;
      require(knows(slot), "2q: an evictable block has no key");
    }
    require(queued == size(), "2q: an evictable block is in no queue");
    out_.check();
  }

  void admit(const Admission& request) override {
    for (std::size_t i = 0; i < request.keys.size(); ++i) {
      const Slot slot = request.slots[i];
      if (slot == kNoSlot) {
        ghost_hits_ += out_.expect(request.keys[i]);
      } else if (state_[slot] == (kMain | kQueued)) {
        main_.erase(slot);
        main_.push_back(slot);
      }
    }
  }

  Snapshot snapshot() const override {
    Snapshot out;
    for (const SlotList* queue : {&in_, &main_}) {
      for (Slot slot = queue->front(); slot != kNoSlot; slot = queue->next(slot)) out.entries.push_back(entry(slot));
    }
    for (Slot slot = 0; slot < num_slots(); ++slot) {  // held, but known
      if (knows(slot) && !(state_[slot] & kQueued)) out.entries.push_back(entry(slot));
    }
    out.ghosts = {out_.keys()};
    return out;
  }
  void adopt_history(const Snapshot& snapshot) override {
    for (const Key key : snapshot.ghosts.at(0)) remember(key);
  }
  void place(Slot slot, const Snapshot::Entry& known, bool evictable) override {
    learn(slot, known.key);
    out_.erase(known.key);
    state_[slot] = known.queue ? kMain : 0;
    if (evictable) enqueue(slot);
  }

 protected:
  Slot choose() override {
    if (size() == 0) return kNoSlot;
    const bool from_in = evict_in(in_.size(), main_.size());
    const Slot slot = (from_in ? in_ : main_).pop_front();
    if (from_in) remember(keys_[slot]);
    state_[slot] = 0;
    return slot;
  }

 private:
  static constexpr std::uint8_t kMain = 1;    // belongs to Am
  static constexpr std::uint8_t kQueued = 2;  // stands in its queue

  bool evict_in(std::size_t in, std::size_t main) const {
    return in > 0 && (main == 0 || static_cast<double>(in) > config_.in_ratio * static_cast<double>(in + main));
  }
  void remember(Key key) { out_.remember(key, ghost_store_.capacity()); }
  Snapshot::Entry entry(Slot slot) const { return {keys_[slot], (state_[slot] & kMain) ? 1u : 0u, 0}; }
  void enqueue(Slot slot) {
    (state_[slot] & kMain ? main_ : in_).push_back(slot);
    state_[slot] |= kQueued;
  }
  void dequeue(Slot slot) {
    (state_[slot] & kMain ? main_ : in_).erase(slot);
    state_[slot] &= static_cast<std::uint8_t>(~kQueued);
  }

  Config config_;
  SlotList in_;
  SlotList main_;
  std::vector<std::uint8_t> state_;
  GhostStore ghost_store_;
  GhostList out_;
};

}  // namespace eviction
