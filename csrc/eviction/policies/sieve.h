// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
//
// SIEVE: Zhang, Yang, Yue, Vigfusson, Rashmi, "SIEVE is simpler than LRU",
// NSDI'24. Blocks stand in order of arrival and never move. A hand goes from the
// oldest to the newest: it spares a visited block and clears its mark, and evicts
// the first block that was not visited since; at the newest it starts over.
//
// Where this differs from the paper, and why:
// - A block that a request held returns to its old place, so that the order is
//   that of arrival however often it is used; the hand passes over blocks in use
//   without walking them (`PlaceList`).
// - A hit while the block is in use marks it too, also before its first release.
#pragma once

#include <unordered_set>

#include "../place_list.h"
#include "../policy.h"

namespace eviction {

class Sieve final : public Policy {
 public:
  explicit Sieve(std::uint32_t num_slots) : Policy(num_slots), order_(num_slots), visited_(num_slots, false) {}

  Traits traits() const override { return {}; }
  std::uint32_t size() const override { return order_.size(); }
  std::size_t bytes() const override { return base_bytes() + keys_.size() / 8 + order_.bytes(); }

  void insert(Slot slot, Key key, const BlockInfo&) override {
    learn(slot, key);
    order_.arrive(slot, hand_);
  }
  void reinsert(Slot slot) override { order_.step_in(slot); }
  void take(Slot slot) override { order_.step_out(slot); }

  void forget(Slot slot) override {
    if (order_.has_place(slot)) order_.leave(slot);
    visited_[slot] = false;
    unlearn(slot);
  }

  std::vector<Slot> peek(std::size_t n) const override {
    std::vector<Slot> out;
    std::unordered_set<Slot> cleared;
    std::unordered_set<Slot> gone;
    PlaceList::Place hand = hand_;
    while (out.size() < n && gone.size() < size()) {
      const PlaceList::Place place = under_hand(hand);
      const Slot slot = order_.at(place);
      hand = place + 1;
      if (gone.contains(slot)) continue;
      if (visited_[slot] && cleared.insert(slot).second) continue;
      gone.insert(slot);
      out.push_back(slot);
    }
    return out;
  }

  void clear() override {
    order_.clear();
    visited_.assign(visited_.size(), false);
    unlearn_all();
    hand_ = 0;
    ghost_hits_ = 0;
  }

  void check() const override {
    order_.check();
    for (Slot slot = 0; slot < num_slots(); ++slot) {
      require(order_.has_place(slot) == knows(slot), "sieve: a known block has no place");
    }
  }

  void admit(const Admission& request) override {
    for (const Slot slot : request.slots) {
      if (slot != kNoSlot) visited_[slot] = true;
    }
  }

  // From the hand on, so that the copy can start with its hand at the oldest.
  Snapshot snapshot() const override {
    Snapshot out;
    const auto add = [&](PlaceList::Place first, PlaceList::Place last) {
      for (const Slot slot : order_.slots_between(first, last)) out.entries.push_back({keys_[slot], 0, visited_[slot]});
    };
    add(hand_, PlaceList::kNoPlace);
    add(0, hand_);
    return out;
  }
  void place(Slot slot, const Snapshot::Entry& entry, bool evictable) override {
    learn(slot, entry.key);
    visited_[slot] = entry.value != 0;
    order_.arrive(slot, hand_);
    if (!evictable) order_.step_out(slot);
  }

 protected:
  Slot choose() override {
    while (size() > 0) {
      const PlaceList::Place place = under_hand(hand_);
      const Slot slot = order_.at(place);
      hand_ = place + 1;
      if (!visited_[slot]) {
        order_.leave(slot);
        return slot;
      }
      visited_[slot] = false;
    }
    return kNoSlot;
  }

 private:
  PlaceList::Place under_hand(PlaceList::Place hand) const {
    const PlaceList::Place place = order_.from(hand);
    return place == PlaceList::kNoPlace ? order_.from(0) : place;
  }

  PlaceList order_;
  std::vector<bool> visited_;
  PlaceList::Place hand_ = 0;
};

}  // namespace eviction
