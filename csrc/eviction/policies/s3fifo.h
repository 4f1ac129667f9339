// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
//
// S3-FIFO: Yang, Zhang, Qiu, Yue, Rashmi, "FIFO queues are all you need for
// cache eviction", SOSP'23. New blocks enter a small queue; those that are used
// again before they reach its end move to the main queue, the rest leave and are
// remembered as ghosts; a ghost that is asked for goes to the main queue at once.
// The main queue gives its blocks a second chance for each use, three at most.
//
// S4-FIFO, OSDI'26, is the same with all that is fixed there made a knob: the shares of
// the small queue (rho_S) and of the ghosts (rho_G), the uses that lead to the main
// queue (tau_S), and two more:
//   kappa   a use counts only when a block is older than this share of the small queue
//           (in blocks that have entered since it did). What is used within a moment
//           is one burst.
//   tau_G   uses that a block must have had to be remembered when it leaves.
// The paper has a model that sets them from the first fifth of a trace; it is not
// public. Here they are parameters, and `adaptive` can choose among settings.
//
// Where this differs from the papers, and why:
// - Sizes are shares of the *evictable* blocks. The paper's cache is always full;
//   here requests hold a varying part of the pool.
// - Which queue is evicted from is decided anew after each promotion, because the
//   shares have changed; the authors' code goes on with the small queue.
// - A block that a request held comes back to the end of the queue it was in; in
//   the paper a hit moves nothing. A block in use cannot stand in a queue. Its age is
//   that since it first entered.
// - `promotion` defaults to 1 use, where the authors' code has 2: on prefix-cache
//   traffic one return is the signal. Set 2 to reproduce the paper.
// - A promoted block restarts with no uses, as in the authors' code.
// - Uses are counted once for a request and block, also while it is in use.
// - What tau_G means is our reading of its name and range.
#pragma once

#include <algorithm>
#include <deque>

#include "../ghost_list.h"
#include "../policy.h"
#include "../queue_set.h"

namespace eviction {

class S3Fifo final : public Policy {
 public:
  struct Config {
    double small_ratio = 0.1;  // rho_S: of the evictable blocks, (0, 1)
    double ghost_ratio = 0.9;  // rho_G: of the pool, [0, 8]
    int promotion = 1;         // tau_S: uses in the small queue that lead to the main one, [1, 3]
    double kappa = 0.0;        // of the small queue, [0, 1]
    int remembered_uses = 0;   // tau_G, [0, 1]
  };

  S3Fifo(std::uint32_t num_slots, const Config& config)
      : Policy(num_slots),
        config_(config),
        queues_(links_),
        entered_(config.kappa > 0 ? num_slots : 0, 0),
        ghost_store_(static_cast<std::size_t>(config.ghost_ratio * num_slots)),
        ghosts_(ghost_store_, 0) {}

  Traits traits() const override { return {}; }
  std::uint32_t size() const override { return queues_.size(); }
  std::size_t num_ghosts() const override { return ghosts_.size(); }
  std::size_t ghost_limit() const override { return ghost_store_.capacity(); }
  std::size_t bytes() const override {
    return base_bytes() + queues_.bytes() + entered_.size() * sizeof(entered_[0]) + ghost_store_.bytes();
  }

  void insert(Slot slot, Key key, const BlockInfo&) override {
    learn(slot, key);
    if (ghosts_.erase(key)) queues_.assign(slot, kMain);
    if (!entered_.empty()) entered_[slot] = clock_;
    clock_ += !entered_.empty() && !adopting_;
    queues_.enqueue(slot);
  }
  void reinsert(Slot slot) override { queues_.enqueue(slot); }
  void take(Slot slot) override { queues_.dequeue(slot); }

  void forget(Slot slot) override {
    queues_.drop(slot);
    unlearn(slot);
  }
  void disown(Key key) override { ghosts_.erase(key); }
  void number_keys(Key last) override { ghost_store_.number_keys(last); }
  void prefetch(Key key, Slot) const override { ghost_store_.prefetch(key); }

  std::vector<Slot> peek(std::size_t n) const override;

  void clear() override {
    queues_.clear();
    ghosts_.clear();
    unlearn_all();
    adopting_ = false;
    clock_ = 0;
    ghost_hits_ = 0;
  }

  void check() const override {
    queues_.check([this](Slot slot) { return knows(slot); });
    ghosts_.check();
  }

  void admit(const Admission& request) override {
    adopting_ = false;
    for (std::size_t i = 0; i < request.keys.size(); ++i) {
      const Slot slot = request.slots[i];
      if (slot == kNoSlot) {
        ghost_hits_ += ghosts_.expect(request.keys[i]);
      } else if (uses(slot) < kMaxUses && counts(slot)) {
        queues_.set_note(slot, static_cast<std::uint8_t>(uses(slot) + 1));
      }
    }
  }

  Snapshot snapshot() const override {
    Snapshot out;
    queues_.each([this](Slot slot) { return knows(slot); },
                 [&](Slot slot) {
                   const std::uint32_t age = entered_.empty() ? 0 : std::min(kMostAge, clock_ - entered_[slot]);
                   out.entries.push_back({keys_[slot], queues_.queue_of(slot), 4 * age + uses(slot)});
                 });
    out.ghosts.push_back(ghosts_.keys());
    out.scalars = {static_cast<double>(clock_)};
    return out;
  }
  void adopt_history(const Snapshot& snapshot) override {
    for (const Key key : snapshot.ghosts.at(0)) remember(key);
    adopting_ = true;
    clock_ = adopted_clock_ = static_cast<std::uint32_t>(snapshot.scalars.at(0));
  }
  void place(Slot slot, const Snapshot::Entry& known, bool evictable) override {
    learn(slot, known.key);
    ghosts_.erase(known.key);
    queues_.assign(slot, known.queue ? kMain : kSmall);
    queues_.set_note(slot, known.value % 4);
    if (!entered_.empty()) entered_[slot] = adopted_clock_ - known.value / 4;
    if (evictable) queues_.enqueue(slot);
  }

 protected:
  Slot choose() override {
    while (size() > 0) {
      const bool small = evict_small(queues_[kSmall].size(), queues_[kMain].size());
      const Slot slot = queues_[small ? kSmall : kMain].front();
      if (small && uses(slot) >= config_.promotion) {
        queues_.move(slot, kMain);
        queues_.set_note(slot, 0);
        continue;
      }
      if (!small && uses(slot) > 0) {
        queues_.move(slot, kMain);
        queues_.set_note(slot, static_cast<std::uint8_t>(uses(slot) - 1));
        continue;
      }
      const bool remembered = small && uses(slot) >= config_.remembered_uses;
      queues_.drop(slot);
      if (remembered) {
        if (const Slot next = queues_[kSmall].front(); next != kNoSlot) ghost_store_.prefetch(keys_[next]);
        remember(keys_[slot]);
      }
      return slot;
    }
    return kNoSlot;
  }

 private:
  static constexpr std::uint8_t kSmall = 0;
  static constexpr std::uint8_t kMain = 1;
  static constexpr std::uint8_t kMaxUses = 3;
  static constexpr std::uint32_t kMostAge = (1u << 30) - 1;

  std::uint8_t uses(Slot slot) const { return queues_.note(slot); }
  bool evict_small(std::size_t small, std::size_t main) const {
    return small > 0 &&
           (main == 0 || static_cast<double>(small) >= config_.small_ratio * static_cast<double>(small + main));
  }
  // Whether the block is old enough for a use to mean something.
  bool counts(Slot slot) const {
    if (entered_.empty() || queues_.queue_of(slot) == kMain) return true;
    const std::uint32_t age = knows(slot) ? clock_ - entered_[slot] : 0;
    return age >= config_.kappa * queues_[kSmall].size();
  }
  void remember(Key key) { ghosts_.remember(key, ghost_store_.capacity()); }

  Config config_;
  QueueSet<2> queues_;                  // the note counts uses
  std::vector<std::uint32_t> entered_;  // by the clock; only with kappa
  bool adopting_ = false;               // a hand-over: what enters did not come now
  std::uint32_t adopted_clock_ = 0;     // requests come and go during a hand-over
  std::uint32_t clock_ = 0;             // blocks that have entered, modulo 2^32; only with kappa
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
  Slot small = queues_[kSmall].front();
  Slot main = queues_[kMain].front();
  std::size_t small_size = queues_[kSmall].size();
  std::size_t main_size = queues_[kMain].size();
  std::deque<Pending> appended;
  while (out.size() < n && small_size + main_size > 0) {
    if (evict_small(small_size, main_size)) {
      const Slot slot = small;
      small = queues_[kSmall].next(slot);
      --small_size;
      if (uses(slot) < config_.promotion) {
        out.push_back(slot);
      } else {
        appended.push_back({slot, 0});
        ++main_size;
      }
      continue;
    }
    Pending next{main, 0};
    if (main != kNoSlot) {
      next.uses = uses(main);
      main = queues_[kMain].next(main);
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
