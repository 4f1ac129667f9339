// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
//
// ARC: Megiddo and Modha, "ARC: a self-tuning, low overhead replacement cache",
// FAST'03. T1 holds blocks used once, T2 those used again; B1 and B2 are their
// ghosts. The target size p of T1 grows when a ghost of B1 is asked for and
// shrinks for one of B2, by the ratio of the two lists, at least by one.
//
// Where this differs from the paper, and why:
// - Victims are chosen before the request is known to the policy, and for several
//   blocks at once, so the special case "|T1| = p and the request is for a ghost
//   of B2" cannot be told; a tie evicts from T2.
// - |T1| and |T2| count evictable blocks; those in use cannot be evicted.
// - The ghosts together are bounded by the pool's size c, and by one more between
//   an eviction and the next insertion. In the paper the bound is 2c less what is
//   resident, which is c as well when the cache is full.
// - A ghost that is asked for moves p at the admission of the request, and leaves
//   its list when the recomputed block is released: into T2, as in the paper.
// - A block goes to T2 when it comes back after a request hit it; a pin that is
//   no hit leaves it where it was.
#pragma once

#include <algorithm>

#include "../ghost_list.h"
#include "../policy.h"
#include "../queue_set.h"

namespace eviction {

class Arc final : public Policy {
 public:
  explicit Arc(std::uint32_t num_slots)
      : Policy(num_slots),
        queues_(links_),
        ghosts_(static_cast<std::size_t>(num_slots) + 1),
        b1_(ghosts_, 1),
        b2_(ghosts_, 2) {}

  Traits traits() const override { return {.moves_on_hit = true}; }
  std::uint32_t size() const override { return queues_.size(); }
  std::size_t num_ghosts() const override { return ghosts_.size(); }
  std::size_t ghost_limit() const override { return ghosts_.capacity(); }
  std::size_t bytes() const override { return base_bytes() + queues_.bytes() + ghosts_.bytes(); }
  double target() const { return target_; }

  void insert(Slot slot, Key key, const BlockInfo&) override {
    learn(slot, key);
    // Not asked for by an admission (a request that skipped the lookup): then it
    // moves p here.
    if (const GhostStore::Ghost ghost = ghosts_.find(key)) {
      const bool from_b1 = b1_.owns(ghost);
      GhostList& list = from_b1 ? b1_ : b2_;
      if (!list.expected(ghost)) from_b1 ? favour_recency() : favour_frequency();
      list.erase(ghost);
      queues_.set_note(slot, kHit);
    }
    reinsert(slot);
  }
  void reinsert(Slot slot) override {
    if (queues_.note(slot) == kHit) {
      queues_.assign(slot, kT2);
      queues_.set_note(slot, 0);
    }
    queues_.enqueue(slot);
    bound_ghosts();
  }
  void take(Slot slot) override { queues_.dequeue(slot); }

  void forget(Slot slot) override {
    queues_.drop(slot);
    unlearn(slot);
  }
  void number_keys(Key last) override { ghosts_.number_keys(last); }
  void prefetch(Key key, Slot) const override { ghosts_.prefetch(key); }
  void disown(Key key) override {
    if (const GhostStore::Ghost ghost = ghosts_.find(key)) (b1_.owns(ghost) ? b1_ : b2_).erase(ghost);
  }

  std::vector<Slot> peek(std::size_t n) const override {
    std::vector<Slot> out;
    Slot first = queues_[kT1].front();
    Slot second = queues_[kT2].front();
    std::size_t t1 = queues_[kT1].size();
    std::size_t t2 = queues_[kT2].size();
    while (out.size() < n && t1 + t2 > 0) {
      if (evict_t1(t1, t2)) {
        out.push_back(first);
        first = queues_[kT1].next(first);
        --t1;
      } else {
        out.push_back(second);
        second = queues_[kT2].next(second);
        --t2;
      }
    }
    return out;
  }

  void clear() override {
    queues_.clear();
    b1_.clear();
    b2_.clear();
    unlearn_all();
    target_ = 0.0;
    ghost_hits_ = 0;
  }

  void check() const override {
    queues_.check([this](Slot slot) { return knows(slot); });
    b1_.check();
    b2_.check();
    require(queues_[kT1].size() + b1_.size() <= num_slots(), "arc: T1 and B1 are too long");
    require(num_ghosts() <= ghost_limit(), "arc: too many ghosts");
    require(target_ >= 0.0 && target_ <= num_slots(), "arc: the target left its range");
  }

  void admit(const Admission& request) override {
    for (std::size_t i = 0; i < request.keys.size(); ++i) {
      const Slot slot = request.slots[i];
      if (slot != kNoSlot) {
        queues_.set_note(slot, kHit);
        continue;
      }
      // The ratio is that of the lists with the ghost still in them.
      const GhostStore::Ghost ghost = ghosts_.find(request.keys[i]);
      if (!ghost) continue;
      const bool from_b1 = b1_.owns(ghost);
      (from_b1 ? b1_ : b2_).expect(ghost);
      ++ghost_hits_;
      from_b1 ? favour_recency() : favour_frequency();
    }
  }

  Snapshot snapshot() const override {
    Snapshot out;
    queues_.each([this](Slot slot) { return knows(slot); },
                 [&](Slot slot) { out.entries.push_back({keys_[slot], queues_.queue_of(slot), queues_.note(slot)}); });
    out.ghosts = {b1_.keys(), b2_.keys()};
    out.scalars = {target_};
    return out;
  }
  void adopt_history(const Snapshot& snapshot) override {
    // Both pools are of one size, so all ghosts fit.
    for (const Key key : snapshot.ghosts.at(0)) b1_.add(key);
    for (const Key key : snapshot.ghosts.at(1)) b2_.add(key);
    target_ = snapshot.scalars.at(0);
  }
  void place(Slot slot, const Snapshot::Entry& known, bool evictable) override {
    learn(slot, known.key);
    disown(known.key);
    queues_.assign(slot, static_cast<std::uint8_t>(known.queue));
    queues_.set_note(slot, static_cast<std::uint8_t>(known.value));
    if (!evictable) return;
    queues_.enqueue(slot);
    bound_ghosts();
  }

 protected:
  Slot choose() override {
    if (size() == 0) return kNoSlot;
    const bool from_t1 = evict_t1(queues_[kT1].size(), queues_[kT2].size());
    const SlotList& list = queues_[from_t1 ? kT1 : kT2];
    const Slot slot = list.front();
    make_room_for_ghost();
    queues_.drop(slot);
    if (const Slot next = list.front(); next != kNoSlot) ghosts_.prefetch(keys_[next]);
    GhostList& ghosts = from_t1 ? b1_ : b2_;
    if (const GhostStore::Ghost ghost = ghosts_.find(keys_[slot])) {
      // A stale block, whose content was evicted from another slot since.
      if (ghosts.owns(ghost)) {
        ghosts.renew(ghost);
        return slot;
      }
      (from_t1 ? b2_ : b1_).erase(ghost);
    }
    ghosts.add(keys_[slot]);
    return slot;
  }

 private:
  static constexpr std::uint8_t kT1 = 0;
  static constexpr std::uint8_t kT2 = 1;
  static constexpr std::uint8_t kHit = 1;  // a request hit it since it was queued

  bool evict_t1(std::size_t t1, std::size_t t2) const {
    return t1 > 0 && (t2 == 0 || static_cast<double>(t1) > target_);
  }
  static double ratio(std::size_t other, std::size_t own) {
    return std::max(1.0, static_cast<double>(other) / static_cast<double>(std::max<std::size_t>(own, 1)));
  }
  void favour_recency() { target_ = std::min<double>(num_slots(), target_ + ratio(b2_.size(), b1_.size())); }
  void favour_frequency() { target_ = std::max(0.0, target_ - ratio(b1_.size(), b2_.size())); }
  // The paper's |T1| + |B1| <= c, and <= 2c for all four lists, which leaves c for
  // the ghosts of a full cache. Kept when a block comes in, as in its case IV: a
  // request for a ghost must not cost another one.
  void bound_ghosts() {
    b1_.trim(num_slots() - queues_[kT1].size());
    b2_.trim(num_slots() - b1_.size());
  }
  // Several blocks can go before one comes in: then the list of case IV pays.
  void make_room_for_ghost() {
    if (ghosts_.size() < ghosts_.capacity()) return;
    const bool l1_is_full = b1_.size() > 0 && queues_[kT1].size() + b1_.size() >= num_slots();
    (l1_is_full || b2_.size() == 0 ? b1_ : b2_).trim_one();
  }

  QueueSet<2> queues_;
  GhostStore ghosts_;
  GhostList b1_;
  GhostList b2_;
  double target_ = 0.0;  // p, in blocks
};

}  // namespace eviction
