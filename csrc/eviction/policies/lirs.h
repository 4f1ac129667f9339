// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
//
// LIRS: Jiang and Zhang, "LIRS: an efficient low inter-reference recency set
// replacement policy to improve buffer cache performance", SIGMETRICS'02. Most blocks
// of the cache are LIR: they were used twice in a short while. The others, HIR, stand
// in a small FIFO queue Q, from which victims come. A stack S, by last use, tells what
// "short" is: it ends at the LIR block used longest ago, and an HIR block, resident or
// not, that is used while it is in S becomes LIR; then the block at the bottom of S
// becomes HIR and goes to the end of Q. What lies below the last LIR block is pruned.
//
// S is not a list here. Each use gives a block the next *stamp*; LIR blocks stand in a
// list in order of stamps; an HIR block is in S when its stamp is above the *floor*,
// the stamp at which S was pruned last. So pruning residents costs nothing, and
// ghosts, which come in order of stamps, go one by one.
//
// Where this differs from the paper, and why:
// - A block that a request holds is not in S or Q. It counts among the LIR blocks if it
//   is one, and enters on top when it comes back, hit or not. Whether it was in S is
//   asked when it is taken, as in the paper, where the hit is one moment.
// - When requests hold so much that Q is empty, the LIR block at the bottom goes, and
//   leaves no ghost: it has none below it. In the paper Q is never empty.
// - New blocks are HIR also while the LIR set is not full; in the paper the first
//   ones become LIR, but then the head of a request could go before its tail. Until
//   then no LIR block has to go for another, and S is not pruned.
// - Non-resident blocks are bounded, by `ghost_ratio` times the pool; that with the
//   oldest stamp is dropped. In the paper S has no bound.
// - A ghost that is asked for goes to the top of S and becomes LIR when the recomputed
//   block is released.
// - A hand-over knows the order of ghosts and not their stamps: they are spread evenly
//   over S.
#pragma once

#include <algorithm>
#include <cmath>

#include "../ghost_list.h"
#include "../policy.h"

namespace eviction {

class Lirs final : public Policy {
 public:
  struct Config {
    double hir_ratio = 0.01;    // of the pool, one block at least, (0, 1)
    double ghost_ratio = 0.75;  // of the pool, [0, 8]
  };

  Lirs(std::uint32_t num_slots, const Config& config)
      : Policy(num_slots),
        lir_limit_(num_slots -
                   std::min(num_slots, std::max(1u, static_cast<std::uint32_t>(config.hir_ratio * num_slots)))),
        lir_(links_),
        hir_(links_),
        state_(num_slots, 0),
        stamp_(num_slots, 0),
        ghost_store_(static_cast<std::size_t>(config.ghost_ratio * num_slots)),
        ghosts_(ghost_store_, 0),
        expected_(ghost_store_, 1),
        ghost_stamp_(ghost_store_.capacity(), 0) {}

  Traits traits() const override { return {.moves_on_hit = true}; }
  std::uint32_t size() const override { return lir_.size() + hir_.size(); }
  std::size_t num_ghosts() const override { return ghost_store_.size(); }
  std::size_t ghost_limit() const override { return ghost_store_.capacity(); }
  std::size_t bytes() const override {
    return base_bytes() + state_.size() * (1 + sizeof(Stamp)) + ghost_store_.bytes() +
           ghost_stamp_.size() * sizeof(Stamp);
  }

  void insert(Slot slot, Key key, const BlockInfo&) override {
    learn(slot, key);
    if (drop_ghost(key)) state_[slot] |= kHit;
    state_[slot] |= kRecent;
    reinsert(slot);
  }
  void reinsert(Slot slot) override {
    const bool recent = state_[slot] & kRecent;
    if (!(state_[slot] & kLir) && (state_[slot] & kHit)) {
      state_[slot] = kLir;
      ++num_lir_;
    }
    state_[slot] &= kLir;
    stamp_[slot] = recent || (state_[slot] & kLir) ? tick() : 0;
    enqueue(slot);
    while (num_lir_ > lir_limit_ && !lir_.empty()) demote(lir_.front());
  }
  void take(Slot slot) override {
    const bool recent = stamp_[slot] > floor_;
    dequeue(slot);
    if (recent) state_[slot] |= kRecent;
  }

  void forget(Slot slot) override {
    if (state_[slot] & kQueued) dequeue(slot);
    reset(slot);
    unlearn(slot);
  }
  void disown(Key key) override { drop_ghost(key); }
  void number_keys(Key last) override { ghost_store_.number_keys(last); }
  void prefetch(Key key, Slot) const override { ghost_store_.prefetch(key); }

  std::vector<Slot> peek(std::size_t n) const override {
    std::vector<Slot> out;
    for (const SlotList* queue : {&hir_, &lir_}) {
      for (Slot slot = queue->front(); slot != kNoSlot && out.size() < n; slot = queue->next(slot)) out.push_back(slot);
    }
    return out;
  }

  void clear() override {
    lir_.clear();
    hir_.clear();
    ghosts_.clear();
    expected_.clear();
    state_.assign(state_.size(), 0);
    stamp_.assign(stamp_.size(), 0);
    unlearn_all();
    num_lir_ = 0;
    clock_ = floor_ = 0;
    ghost_hits_ = 0;
  }

  void check() const override {
    Stamp before = floor_;
    lir_.check([&](Slot slot) {
      require((state_[slot] & (kLir | kQueued)) == (kLir | kQueued), "lirs: wrong queue");
      require(stamp_[slot] >= before && stamp_[slot] <= clock_, "lirs: the stack is out of order");
      before = stamp_[slot];
    });
    hir_.check([this](Slot slot) { require((state_[slot] & (kLir | kQueued)) == kQueued, "lirs: wrong queue"); });
    std::uint32_t queued = 0;
    std::uint32_t lir = 0;
    for (Slot slot = 0; slot < num_slots(); ++slot) {
      lir += (state_[slot] & kLir) != 0;
      if (!(state_[slot] & kQueued)) continue;
      ++queued;
      require(knows(slot), "lirs: an evictable block has no key");
    }
    require(queued == size(), "lirs: an evictable block is in no queue");
    require(lir == num_lir_ && lir <= lir_limit_, "lirs: wrong number of LIR blocks");
    for (const GhostList* list : {&ghosts_, &expected_}) {
      list->check();
      before = floor_;
      for (const Key key : list->keys()) {
        const Stamp stamp = ghost_stamp_[ghost_store_.find(key).node];
        require(stamp >= before && stamp > floor_, "lirs: a ghost is out of order, or below the stack");
        before = stamp;
      }
    }
  }

  void admit(const Admission& request) override {
    for (std::size_t i = 0; i < request.keys.size(); ++i) {
      const Slot slot = request.slots[i];
      if (slot == kNoSlot) {
        expect(request.keys[i]);
      } else if (state_[slot] & kQueued) {  // in caches without pins
        if (stamp_[slot] > floor_) state_[slot] |= kHit;
      } else {
        // A block that is computed just now was used by the request that computes it.
        state_[slot] |= knows(slot) && !(state_[slot] & kRecent) ? kRecent : kHit;
      }
    }
  }

  Snapshot snapshot() const override {
    const auto entry = [&](Slot slot) -> Snapshot::Entry {
      Stamp stamp = stamp_[slot];
      if (!(state_[slot] & kQueued)) stamp = state_[slot] & kRecent ? kTop : 0;
      return {keys_[slot], state_[slot] & kLir ? 1u : 0u, 2 * stamp + (state_[slot] & kHit ? 1u : 0u)};
    };
    Snapshot out;
    for (const Slot slot : peek(size())) out.entries.push_back(entry(slot));
    for (Slot slot = 0; slot < num_slots(); ++slot) {  // held, but known
      if (knows(slot) && !(state_[slot] & kQueued)) out.entries.push_back(entry(slot));
    }
    out.ghosts = {ghosts_.keys(), expected_.keys()};
    out.scalars = {static_cast<double>(floor_)};
    return out;
  }
  void adopt_history(const Snapshot& snapshot) override {
    clock_ = floor_ = static_cast<Stamp>(snapshot.scalars.at(0));
    for (const Snapshot::Entry& entry : snapshot.entries) {
      if (entry.value / 2 < kTop) clock_ = std::max<Stamp>(clock_, entry.value / 2);
    }
    tick();  // so that there is room above the floor
    for (std::size_t i = 0; i < 2; ++i) {
      const std::vector<Key>& keys = snapshot.ghosts.at(i);
      for (std::size_t at = 0; at < keys.size(); ++at) {
        const double share = static_cast<double>(at + 1) / static_cast<double>(keys.size());
        const auto above = static_cast<Stamp>(std::ceil(share * static_cast<double>(clock_ - floor_)));
        add_ghost(i == 0 ? ghosts_ : expected_, keys[at], floor_ + above);
      }
    }
  }
  void place(Slot slot, const Snapshot::Entry& known, bool evictable) override {
    learn(slot, known.key);
    drop_ghost(known.key);
    const Stamp stamp = known.value / 2;
    state_[slot] = static_cast<std::uint8_t>((known.queue ? kLir : 0) | (known.value & 1 ? kHit : 0));
    num_lir_ += known.queue != 0;
    if (!evictable) {
      if (stamp > floor_) state_[slot] |= kRecent;
      return;
    }
    // What the snapshot's owner holds is on top of the stack.
    const bool on_top = stamp == kTop || (known.queue && stamp == 0);
    stamp_[slot] = on_top ? tick() : stamp;
    enqueue(slot);
  }

 protected:
  Slot choose() override {
    if (size() == 0) return kNoSlot;
    const bool from_hir = !hir_.empty();
    const Slot slot = from_hir ? hir_.front() : lir_.front();
    const Stamp stamp = stamp_[slot];
    dequeue(slot);
    if (from_hir) {
      if (const Slot next = hir_.front(); next != kNoSlot) ghost_store_.prefetch(keys_[next]);
      drop_ghost(keys_[slot]);  // of a stale block, evicted from another slot since
      if (stamp > floor_) add_ghost(ghosts_, keys_[slot], stamp);
    }
    reset(slot);
    return slot;
  }

 private:
  using Stamp = std::uint32_t;
  static constexpr Stamp kTop = 0x7fffffff;
  static constexpr std::uint8_t kLir = 1;
  static constexpr std::uint8_t kHit = 2;     // used while it was in the stack
  static constexpr std::uint8_t kRecent = 4;  // held, and in the stack
  static constexpr std::uint8_t kQueued = 8;  // evictable

  Stamp tick() {
    if (clock_ + 1 == kTop) rebase();
    return ++clock_;
  }
  // Stamps have 31 bits. What is half of that older than the rest is as good as equal.
  void rebase() {
    const Stamp by = kTop / 2;
    const auto moved = [&](Stamp stamp) { return stamp > by ? stamp - by : stamp > floor_ ? Stamp{1} : Stamp{0}; };
    for (Stamp& stamp : stamp_) stamp = moved(stamp);
    for (Stamp& stamp : ghost_stamp_) stamp = moved(stamp);
    clock_ -= by;
    floor_ = floor_ > by ? floor_ - by : 0;
  }
  void reset(Slot slot) {
    if (state_[slot] & kLir) --num_lir_;
    state_[slot] = 0;
    stamp_[slot] = 0;
  }
  void enqueue(Slot slot) {
    (state_[slot] & kLir ? lir_ : hir_).push_back(slot);
    state_[slot] |= kQueued;
  }
  void dequeue(Slot slot) {
    state_[slot] &= static_cast<std::uint8_t>(~kQueued);
    if (!(state_[slot] & kLir)) {
      hir_.erase(slot);
      return;
    }
    const bool was_bottom = lir_.front() == slot;
    lir_.erase(slot);
    if (was_bottom) prune();
  }
  void demote(Slot slot) {
    dequeue(slot);
    state_[slot] &= static_cast<std::uint8_t>(~kLir);
    --num_lir_;
    enqueue(slot);
  }
  void prune() {
    floor_ = lir_.empty() ? clock_ : stamp_[lir_.front()];
    for (GhostList* list : {&ghosts_, &expected_}) {
      while (list->size() > 0 && ghost_stamp_[list->oldest().node] <= floor_) list->erase(list->oldest());
    }
  }
  void expect(Key key) {
    const GhostStore::Ghost ghost = ghost_store_.find(key);
    if (!ghost) return;
    ++ghost_hits_;
    (expected_.owns(ghost) ? expected_ : ghosts_).erase(ghost);
    add_ghost(expected_, key, tick());
  }
  bool drop_ghost(Key key) {
    const GhostStore::Ghost ghost = ghost_store_.find(key);
    if (ghost) (expected_.owns(ghost) ? expected_ : ghosts_).erase(ghost);
    return static_cast<bool>(ghost);
  }
  // Not below a ghost of the list: after a hand-over, blocks can go out of order.
  void add_ghost(GhostList& list, Key key, Stamp stamp) {
    if (ghost_store_.capacity() == 0) return;
    if (list.size() > 0) stamp = std::max(stamp, ghost_stamp_[list.newest().node]);
    if (ghost_store_.size() == ghost_store_.capacity()) {
      const GhostStore::Ghost first = ghosts_.oldest();
      const GhostStore::Ghost second = expected_.oldest();
      const bool from_first = first && (!second || ghost_stamp_[first.node] < ghost_stamp_[second.node]);
      if (stamp < ghost_stamp_[(from_first ? first : second).node]) return;
      from_first ? ghosts_.erase(first) : expected_.erase(second);
    }
    list.add(key);
    ghost_stamp_[list.newest().node] = stamp;
  }

  std::uint32_t lir_limit_;
  SlotList lir_;  // in order of stamps
  SlotList hir_;  // Q
  std::vector<std::uint8_t> state_;
  std::vector<Stamp> stamp_;  // of the last use; at most `floor_` when not in S
  GhostStore ghost_store_;
  GhostList ghosts_;
  GhostList expected_;
  std::vector<Stamp> ghost_stamp_;  // by node of the store
  std::uint32_t num_lir_ = 0;       // also held
  Stamp clock_ = 0;
  Stamp floor_ = 0;
};

}  // namespace eviction
