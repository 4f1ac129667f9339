// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
//
// S3-FIFO: Yang, Zhang, Qiu, Yue, Rashmi, "FIFO queues are all you need for
// cache eviction", SOSP'23. New blocks enter a small queue; those that are used
// again before they reach its end move to the main queue, the rest leave and are
// remembered as ghosts; a ghost that is asked for goes to the main queue at once.
// The main queue gives its blocks a second chance for each use, three at most.
//
// Where this differs from the paper, and why:
// - Sizes are shares of the *evictable* blocks. The paper's cache is always full;
//   here requests hold a varying part of the pool.
// - Which queue is evicted from is decided anew after each promotion, because the
//   shares have changed; the authors' code goes on with the small queue.
// - A block that a request held comes back to the end of the queue it was in; in
//   the paper a hit moves nothing. A block in use cannot stand in a queue.
// - `promotion` defaults to 1 use, where the authors' code has 2: on prefix-cache
//   traffic one return is the signal. Set 2 to reproduce the paper.
// - A promoted block restarts with no uses, as in the authors' code.
// - Uses are counted once for a request and block, also while it is in use.
#pragma once

#include <algorithm>
#include <deque>
#include <unordered_map>

#include "../ghost_list.h"
#include "../policy.h"

namespace eviction {

class S3Fifo final : public Policy {
 public:
  struct Config {
    double small_ratio = 0.1;  // of the evictable blocks, (0, 1)
    double ghost_ratio = 0.9;  // of the pool, [0, 8]
    int promotion = 1;         // uses in the small queue that lead to the main one, [1, 3]
  };

  S3Fifo(std::uint32_t num_slots, const Config& config)
      : Policy(num_slots),
        config_(config),
        small_(links_),
        main_(links_),
        state_(num_slots, 0),
        ghost_store_(static_cast<std::size_t>(config.ghost_ratio * num_slots)),
        ghosts_(ghost_store_, 0) {}

  Traits traits() const override { return {}; }
  std::uint32_t size() const override { return small_.size() + main_.size(); }
  std::size_t num_ghosts() const override { return ghosts_.size(); }
  std::size_t ghost_limit() const override { return ghost_store_.capacity(); }
  std::size_t bytes() const override { return base_bytes() + state_.size() + ghost_store_.bytes(); }

  void insert(Slot slot, Key key, const BlockInfo&) override {
    learn(slot, key);
    if (ghosts_.erase(key)) state_[slot] |= kMain;
    enqueue(slot);
  }
  void reinsert(Slot slot) override { enqueue(slot); }
  void take(Slot slot) override { dequeue(slot); }

  void forget(Slot slot) override {
    if (state_[slot] & kQueued) dequeue(slot);
    state_[slot] = 0;
    unlearn(slot);
  }
  void disown(Key key) override { ghosts_.erase(key); }
  void number_keys(Key last) override { ghost_store_.number_keys(last); }
  void prefetch(Key key) const override { ghost_store_.prefetch(key); }

  std::vector<Slot> peek(std::size_t n) const override;

  void clear() override {
    small_.clear();
    main_.clear();
    ghosts_.clear();
    state_.assign(state_.size(), 0);
    unlearn_all();
    ghost_hits_ = 0;
  }

  void check() const override {
    small_.check([this](Slot slot) { require((state_[slot] & (kMain | kQueued)) == kQueued, "s3fifo: wrong queue"); });
    main_.check(
        [this](Slot slot) { require((state_[slot] & (kMain | kQueued)) == (kMain | kQueued), "s3fifo: wrong queue"); });
    std::uint32_t queued = 0;
    for (Slot slot = 0; slot < num_slots(); ++slot) {
      if (!(state_[slot] & kQueued)) continue;
      ++queued;
      require(knows(slot), "s3fifo: an evictable block has no key");
    }
    require(queued == size(), "s3fifo: an evictable block is not queued");
    ghosts_.check();
  }

  void admit(const Admission& request) override {
    for (std::size_t i = 0; i < request.keys.size(); ++i) {
      const Slot slot = request.slots[i];
      if (slot == kNoSlot) {
        ghost_hits_ += ghosts_.expect(request.keys[i]);
      } else if (uses(state_[slot]) < kMaxUses) {
        ++state_[slot];
      }
    }
  }

  Snapshot snapshot() const override {
    Snapshot out;
    for (const SlotList* queue : {&small_, &main_}) {
      for (Slot slot = queue->front(); slot != kNoSlot; slot = queue->next(slot)) out.entries.push_back(entry(slot));
    }
    for (Slot slot = 0; slot < num_slots(); ++slot) {  // held, but known
      if (knows(slot) && !(state_[slot] & kQueued)) out.entries.push_back(entry(slot));
    }
    out.ghosts.push_back(ghosts_.keys());
    return out;
  }
  void adopt_history(const Snapshot& snapshot) override {
    for (const Key key : snapshot.ghosts.at(0)) remember(key);
  }
  void place(Slot slot, const Snapshot::Entry& known, bool evictable) override {
    learn(slot, known.key);
    ghosts_.erase(known.key);
    state_[slot] = static_cast<std::uint8_t>((known.queue ? kMain : 0) | known.value);
    if (evictable) enqueue(slot);
  }

 protected:
  Slot choose() override {
    while (size() > 0) {
      if (evict_small(small_.size(), main_.size())) {
        const Slot slot = small_.front();
        if (uses(state_[slot]) >= config_.promotion) {
          small_.erase(slot);
          main_.push_back(slot);
          state_[slot] = kMain | kQueued;
          continue;
        }
        small_.erase(slot);
        if (const Slot next = small_.front(); next != kNoSlot) ghost_store_.prefetch(keys_[next]);
        remember(keys_[slot]);
        state_[slot] = 0;
        return slot;
      }
      const Slot slot = main_.pop_front();
      if (uses(state_[slot]) > 0) {
        --state_[slot];
        main_.push_back(slot);
        continue;
      }
      state_[slot] = 0;
      return slot;
    }
    return kNoSlot;
  }

 private:
  // One byte a slot: two bits of uses, then which queue, then whether in it.
  static constexpr std::uint8_t kMaxUses = 3;
  static constexpr std::uint8_t kMain = 4;
  static constexpr std::uint8_t kQueued = 8;
  static int uses(std::uint8_t state) { return state & 3; }

  bool evict_small(std::size_t small, std::size_t main) const {
    return small > 0 &&
           (main == 0 || static_cast<double>(small) >= config_.small_ratio * static_cast<double>(small + main));
  }
  void remember(Key key) { ghosts_.remember(key, ghost_store_.capacity()); }
  Snapshot::Entry entry(Slot slot) const {
    return {keys_[slot], (state_[slot] & kMain) ? 1u : 0u, static_cast<std::uint32_t>(uses(state_[slot]))};
  }
  void enqueue(Slot slot) {
    (state_[slot] & kMain ? main_ : small_).push_back(slot);
    state_[slot] |= kQueued;
  }
  void dequeue(Slot slot) {
    (state_[slot] & kMain ? main_ : small_).erase(slot);
    state_[slot] &= static_cast<std::uint8_t>(~kQueued);
  }

  Config config_;
  SlotList small_;
  SlotList main_;
  std::vector<std::uint8_t> state_;
  GhostStore ghost_store_;
  GhostList ghosts_;
};

// Runs the eviction on the side: pointers into the two queues, and a second
// lane for what would have been appended to the main one.
inline std::vector<Slot> S3Fifo::peek(std::size_t n) const {
  struct Pending {
    Slot slot;
    int uses;
  };
  std::vector<Slot> out;
  Slot small = small_.front();
  Slot main = main_.front();
  std::size_t small_size = small_.size();
  std::size_t main_size = main_.size();
  std::deque<Pending> appended;
  while (out.size() < n && small_size + main_size > 0) {
    if (evict_small(small_size, main_size)) {
      const Slot slot = small;
      small = small_.next(slot);
      --small_size;
      if (uses(state_[slot]) < config_.promotion) {
        out.push_back(slot);
      } else {
        appended.push_back({slot, 0});
        ++main_size;
      }
      continue;
    }
    Pending next{main, 0};
    if (main != kNoSlot) {
      next.uses = uses(state_[main]);
      main = main_.next(main);
    } else {
      next = appended.front();
      appended.pop_front();
    }
    if (next.uses > 0) {
      appended.push_back({next.slot, next.uses - 1});
    } else {
      out.push_back(next.slot);
      --main_size;
    }
  }
  return out;
}

}  // namespace eviction
