// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
//
// Slots in order of arrival, where a slot may step out and later return to the
// place it had. A list cannot do that: either the absent slot stays in it, and
// whoever walks the list walks over all blocks in use, or its place is lost.
// So each slot is given the next number when it arrives, and a bitmap with
// summary levels over the numbers finds the next present one in O(log64 n).
// Numbers run out after twice as many arrivals as there are slots; then the
// places are counted anew, which is constant time for each arrival, amortised.
#pragma once

#include <bit>
#include <vector>

#include "types.h"

namespace eviction {

class PlaceList {
 public:
  using Place = std::uint32_t;
  static constexpr Place kNoPlace = 0xffffffffu;

  explicit PlaceList(std::uint32_t num_slots)
      : place_of_(num_slots, kNoPlace), slot_at_(2 * static_cast<std::size_t>(num_slots) + 64, kNoSlot) {
    for (std::size_t bits = slot_at_.size(); bits > 1;) {
      bits = (bits + 63) / 64;
      levels_.emplace_back(bits, 0);
    }
  }

  std::uint32_t size() const { return size_; }
  std::size_t bytes() const { return (place_of_.size() + slot_at_.size()) * sizeof(Slot) + slot_at_.size() / 7; }
  bool has_place(Slot slot) const { return place_of_[slot] != kNoPlace; }
  bool present(Slot slot) const {
    return has_place(slot) && (levels_[0][place_of_[slot] / 64] >> (place_of_[slot] % 64) & 1);
  }
  Slot at(Place place) const { return slot_at_[place]; }

  // Gives the slot the newest place. `hand` is a place that the owner keeps; it
  // is moved along when the places are counted anew. A hand that has passed the
  // newest slot starts over at the oldest: it does not wait for what arrives.
  void arrive(Slot slot, Place& hand) {
    if (next_place_ == slot_at_.size()) renumber(hand);
    if (hand >= next_place_) hand = 0;
    place_of_[slot] = next_place_;
    slot_at_[next_place_] = slot;
    mark(next_place_++);
    ++size_;
  }
  void step_out(Slot slot) {
    unmark(place_of_[slot]);
    --size_;
  }
  void step_in(Slot slot) {
    mark(place_of_[slot]);
    ++size_;
  }
  // The slot gives up its place, present or not.
  void leave(Slot slot) {
    if (present(slot)) step_out(slot);
    slot_at_[place_of_[slot]] = kNoSlot;
    place_of_[slot] = kNoPlace;
    // So that `next_place_` is behind the newest slot; once for each arrival.
    while (next_place_ > 0 && slot_at_[next_place_ - 1] == kNoSlot) --next_place_;
  }

  // The first present place at or after `place`, or kNoPlace.
  Place from(Place place) const {
    if (place >= slot_at_.size()) return kNoPlace;
    std::size_t index = place;
    for (std::size_t level = 0; level < levels_.size(); ++level) {
      const std::size_t word = index / 64;
      if (word < levels_[level].size()) {
        const std::uint64_t rest = levels_[level][word] >> (index % 64) << (index % 64);
        if (rest != 0) {
          index = word * 64 + static_cast<std::size_t>(std::countr_zero(rest));
          while (level-- > 0) index = index * 64 + static_cast<std::size_t>(std::countr_zero(levels_[level][index]));
          return static_cast<Place>(index);
        }
      }
      index = word + 1;
    }
    return kNoPlace;
  }

  // All slots that have a place in [first, last), present or not, oldest first.
  std::vector<Slot> slots_between(Place first, Place last) const {
    std::vector<Slot> out;
    for (Place place = first; place < last && place < next_place_; ++place) {
      if (slot_at_[place] != kNoSlot) out.push_back(slot_at_[place]);
    }
    return out;
  }

  void clear() {
    place_of_.assign(place_of_.size(), kNoPlace);
    slot_at_.assign(slot_at_.size(), kNoSlot);
    for (auto& level : levels_) level.assign(level.size(), 0);
    next_place_ = 0;
    size_ = 0;
  }

  void check() const {
    std::uint32_t count = 0;
    for (Place place = from(0); place != kNoPlace; place = from(place + 1)) {
      require(slot_at_[place] != kNoSlot && place_of_[slot_at_[place]] == place,
              "place list: a place without its slot");
      ++count;
    }
    require(count == size_, "place list: wrong size");
  }

 private:
  void mark(Place place) {
    std::size_t index = place;
    for (auto& level : levels_) {
      level[index / 64] |= std::uint64_t{1} << (index % 64);
      index /= 64;
    }
  }
  void unmark(Place place) {
    std::size_t index = place;
    for (auto& level : levels_) {
      level[index / 64] &= ~(std::uint64_t{1} << (index % 64));
      if (level[index / 64] != 0) return;
      index /= 64;
    }
  }
  void renumber(Place& hand) {
    std::vector<bool> was_present;
    std::vector<Slot> order;
    Place new_hand = kNoPlace;
    for (Place place = 0; place < slot_at_.size(); ++place) {
      if (place >= hand && new_hand == kNoPlace) new_hand = static_cast<Place>(order.size());
      if (slot_at_[place] == kNoSlot) continue;
      order.push_back(slot_at_[place]);
      was_present.push_back(present(slot_at_[place]));
    }
    hand = new_hand == kNoPlace ? static_cast<Place>(order.size()) : new_hand;
    clear();
    for (std::size_t i = 0; i < order.size(); ++i) {
      place_of_[order[i]] = next_place_;
      slot_at_[next_place_] = order[i];
      if (was_present[i]) {
        mark(next_place_);
        ++size_;
      }
      ++next_place_;
    }
  }

  std::vector<Place> place_of_;
  std::vector<Slot> slot_at_;
  std::vector<std::vector<std::uint64_t>> levels_;  // a bit a place; a bit a word of the level below
  Place next_place_ = 0;
  std::uint32_t size_ = 0;
};

}  // namespace eviction
