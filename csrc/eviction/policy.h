// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
//
// The interface that an eviction policy is written against, once, for the live
// free queue, the shadow pools and the simulator. Two halves:
//
//   Order     who goes next among the evictable blocks; every policy has it.
//   Observer  what requests do; optional, and no-op unless a policy listens.
//
// The caller keeps the events in the order of the engine: the blocks that a
// request hits are taken, victims are chosen for the rest, then the request is
// admitted; it may grow; it finishes, and its blocks come back tail first.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "slot_list.h"
#include "types.h"

namespace eviction {

struct Traits {
  bool prefix_safe = false;      // a parent never goes before its child
  bool needs_structure = false;  // reads BlockInfo::parent and the requests' paths
  bool needs_cost = false;       // reads BlockInfo::cost
  bool offline = false;          // knows the future: never in a live queue
  bool moves_on_hit = false;     // without pins, a hit is a release: the block moves
  bool fills_holes = false;      // keeps blocks behind missing ones, for an engine that can fill the hole
  // Orders by time of release alone. Such a policy also takes blocks without a
  // key and duplicates, so that the order is vLLM's own, operation for operation.
  bool upstream_order = false;
};

// What one policy knows of its blocks, for another instance of the same policy
// whose slots and residents differ. Matched by key.
struct Snapshot {
  struct Entry {
    Key key;
    std::uint32_t queue;  // which of the policy's queues
    std::uint32_t value;  // what it learnt of the block: a frequency, a bit
  };
  std::vector<Entry> entries;            // queue by queue, each from its front
  std::vector<std::vector<Key>> ghosts;  // each list from its oldest
  std::vector<double> scalars;           // targets, hands, clocks
};

// One admitted request: a key for each of its full blocks, in prefix order, one
// KV-cache group after the other. `slots[i]` is the block that it was given for
// `keys[i]`, or kNoSlot where it has to compute it.
struct Admission {
  Serial serial = 0;
  std::span<const Key> keys;
  std::span<const Slot> slots;
  double now = 0.0;             // seconds, monotonic
  std::size_t first_group = 0;  // keys of the first KV-cache group; 0: there is no other
};

class Policy {
 public:
  explicit Policy(std::uint32_t num_slots) : links_(num_slots), keys_(num_slots, kNoKey), known_(num_slots, false) {}
  virtual ~Policy() = default;
  Policy(const Policy&) = delete;
  Policy& operator=(const Policy&) = delete;

  std::uint32_t num_slots() const { return static_cast<std::uint32_t>(keys_.size()); }
  // The key that the slot was inserted with; kNoKey when it is not known (any
  // more). A slot stays known while a request holds it.
  Key key_of(Slot slot) const { return known_[slot] ? keys_[slot] : kNoKey; }

  // For the owner of the slots, to save it arrays of its own. The links serve
  // lists of slots that the policy does not hold; the contents, set when a block
  // is filled, are not looked at before it is inserted.
  SlotLinks& links() { return links_; }
  Key content(Slot slot) const { return keys_[slot]; }
  void set_content(Slot slot, Key key) { keys_[slot] = key; }

  virtual Traits traits() const = 0;
  virtual std::uint32_t size() const = 0;  // evictable blocks
  virtual std::size_t num_ghosts() const { return 0; }
  virtual std::size_t ghost_limit() const { return 0; }
  virtual std::size_t bytes() const = 0;  // memory taken, without sizeof(*this)

  // ---- Order. All O(1) or O(log n), amortised; never a scan. ----

  // The block became evictable for the first time since it was filled. The slot
  // is not known. In a live queue another known slot may have the same key: one that
  // lost its content since, unnoticed, or is about to go as the second copy.
  virtual void insert(Slot slot, Key key, const BlockInfo& info) = 0;
  // A known block that was held is evictable again; what was learnt is kept.
  virtual void reinsert(Slot slot) = 0;
  // A request or a pin holds the evictable block. No credit by itself.
  virtual void take(Slot slot) = 0;
  // Chooses, removes and returns the next block and records its ghost; the slot
  // is unknown afterwards. {kNoSlot, kNoKey} only when nothing is evictable.
  struct Victim {
    Slot slot;
    Key key;
  };
  Victim victim() {
    const Slot slot = choose();
    if (slot >= num_slots()) return {kNoSlot, kNoKey};
    if (!known_[slot]) return {slot, kNoKey};
    known_[slot] = false;
    return {slot, keys_[slot]};
  }
  // The block's content is gone without having been evicted: no ghost. The slot
  // may be evictable, held, or not known at all.
  virtual void forget(Slot slot) = 0;
  // A victim turned out to have lost its content before: it was no loss. Called only
  // where `ghost_limit` is not 0, and perhaps after the choice of further victims.
  virtual void disown(Key) {}
  // The next `n` victims in order, fewer if fewer are evictable; changes nothing.
  virtual std::vector<Slot> peek(std::size_t n) const = 0;
  // Everything back to the state after construction.
  virtual void clear() = 0;
  // Recomputes all sizes and walks all lists; throws BrokenInvariant.
  virtual void check() const = 0;

  // Hand-over to another instance; see hand_over.h for the order of the calls.
  virtual Snapshot snapshot() const = 0;
  // Takes over ghosts and scalars. On a cleared instance, before all blocks.
  virtual void adopt_history(const Snapshot&) {}
  // Puts a block that the snapshot knows in its place: at the back of its queue
  // when it is evictable, else only what was learnt of it.
  virtual void place(Slot slot, const Snapshot::Entry& entry, bool evictable) = 0;
  // All blocks are placed: what was kept for that goes, at most `budget` blocks' worth of
  // it. True when nothing is left. Whoever asks for a victim need not have called it.
  virtual bool end_adoption(std::size_t /*budget*/) { return true; }

  // Keys are numbers up to `last`, so that what is kept by key can be a table. Before
  // the first block.
  virtual void number_keys(Key /*last*/) {}

  // The key will soon be admitted; or released, then with the slot that it is in.
  virtual void prefetch(Key, Slot) const {}

  // ---- Observer. ----

  virtual void admit(const Admission&) {}
  virtual void grow(Serial, std::span<const Key>) {}
  virtual void finish(Serial, std::span<const Key> /*cached*/, double /*now*/) {}
  virtual void advance(double /*now*/) {}

  // What it has learnt of the traffic, apart from its blocks: for another run of the
  // same policy. Empty for one that learns nothing; `load_model` is false, and nothing
  // has changed, for what is no model of this policy.
  virtual std::vector<double> model() const { return {}; }
  virtual bool load_model(std::span<const double>) { return false; }
  // The same for people: rows of numbers by name. Reads all that was counted, so not on
  // the scheduler's path.
  virtual std::map<std::string, std::vector<double>> report() const { return {}; }

  // Queried blocks that were found among the ghosts: what eviction cost so far.
  std::uint64_t ghost_hits() const { return ghost_hits_; }

 protected:
  // The work of `victim`, except that the slot stays known.
  virtual Slot choose() = 0;

  void learn(Slot slot, Key key) {
    keys_[slot] = key;
    known_[slot] = true;
  }
  void unlearn(Slot slot) { known_[slot] = false; }
  bool knows(Slot slot) const { return known_[slot]; }
  void unlearn_all() { known_.assign(known_.size(), false); }

  // Of this base class: links, keys and a bit.
  std::size_t base_bytes() const { return keys_.size() * (2 * sizeof(Slot) + sizeof(Key)) + keys_.size() / 8; }

  SlotLinks links_;
  std::vector<Key> keys_;
  std::uint64_t ghost_hits_ = 0;

 private:
  std::vector<bool> known_;
};

}  // namespace eviction
