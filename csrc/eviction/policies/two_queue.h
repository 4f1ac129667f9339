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
#include "../queue_set.h"

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
        queues_(links_),
        ghost_store_(static_cast<std::size_t>(config.ghost_ratio * num_slots)),
        out_(ghost_store_, 0) {}

  Traits traits() const override { return {}; }
  std::uint32_t size() const override { return queues_.size(); }
  std::size_t num_ghosts() const override { return out_.size(); }
  std::size_t ghost_limit() const override { return ghost_store_.capacity(); }
  std::size_t bytes() const override { return base_bytes() + queues_.bytes() + ghost_store_.bytes(); }

  void insert(Slot slot, Key key, const BlockInfo&) override {
    learn(slot, key);
    queues_.assign(slot, out_.erase(key) ? kMain : kIn);
    queues_.enqueue(slot);
  }
  void reinsert(Slot slot) override { queues_.enqueue(slot); }
  void take(Slot slot) override { queues_.dequeue(slot); }

  void forget(Slot slot) override {
    queues_.drop(slot);
    unlearn(slot);
  }
  void disown(Key key) override { out_.erase(key); }
  void number_keys(Key last) override { ghost_store_.number_keys(last); }
  void prefetch(Key key, Slot) const override { ghost_store_.prefetch(key); }

  std::vector<Slot> peek(std::size_t n) const override {
    std::vector<Slot> victims;
    Slot in = queues_[kIn].front();
    Slot main = queues_[kMain].front();
    std::size_t in_size = queues_[kIn].size();
    std::size_t main_size = queues_[kMain].size();
    while (victims.size() < n && in_size + main_size > 0) {
      const bool first = evict_in(in_size, main_size);
      Slot& next = first ? in : main;
      victims.push_back(next);
      next = queues_[first ? kIn : kMain].next(next);
      --(first ? in_size : main_size);
    }
    return victims;
  }

  void clear() override {
    queues_.clear();
    out_.clear();
    unlearn_all();
    ghost_hits_ = 0;
  }

  void check() const override {
    queues_.check([this](Slot slot) { return knows(slot); });
    out_.check();
  }

  void admit(const Admission& request) override {
    for (std::size_t i = 0; i < request.keys.size(); ++i) {
      const Slot slot = request.slots[i];
      if (slot == kNoSlot) {
        ghost_hits_ += out_.expect(request.keys[i]);
      } else if (queues_.queued(slot) && queues_.queue_of(slot) == kMain) {
        queues_.move(slot, kMain);
      }
    }
  }

  Snapshot snapshot() const override {
    Snapshot out;
    queues_.each([this](Slot slot) { return knows(slot); },
                 [&](Slot slot) { out.entries.push_back({keys_[slot], queues_.queue_of(slot), 0}); });
    out.ghosts = {out_.keys()};
    return out;
  }
  void adopt_history(const Snapshot& snapshot) override {
    for (const Key key : snapshot.ghosts.at(0)) remember(key);
  }
  void place(Slot slot, const Snapshot::Entry& known, bool evictable) override {
    learn(slot, known.key);
    out_.erase(known.key);
    queues_.assign(slot, static_cast<std::uint8_t>(known.queue));
    if (evictable) queues_.enqueue(slot);
  }

 protected:
  Slot choose() override {
    if (size() == 0) return kNoSlot;
    const bool from_in = evict_in(queues_[kIn].size(), queues_[kMain].size());
    const Slot slot = queues_[from_in ? kIn : kMain].front();
    if (from_in) remember(keys_[slot]);
    queues_.drop(slot);
    return slot;
  }

 private:
  static constexpr std::uint8_t kIn = 0;    // A1in
  static constexpr std::uint8_t kMain = 1;  // Am

  bool evict_in(std::size_t in, std::size_t main) const {
    return in > 0 && (main == 0 || static_cast<double>(in) > config_.in_ratio * static_cast<double>(in + main));
  }
  void remember(Key key) { out_.remember(key, ghost_store_.capacity()); }

  Config config_;
  QueueSet<2> queues_;
  GhostStore ghost_store_;
  GhostList out_;
};

}  // namespace eviction
