// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
//
// Slots of which a few are drawn and the one of lowest score is chosen: for scores that
// change with time, so that no order of all slots could be kept. Among equals the one
// that arrived first goes. Draws are a function of a seed and their number, so what
// will be chosen next can be told. Sets that are not larger than a sample are looked at
// as a whole.
#pragma once

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "splitmix.h"
#include "types.h"

namespace eviction {

class SampledSet {
 public:
  explicit SampledSet(std::uint32_t num_slots) : arrival_(num_slots, 0), place_(num_slots, kNoSlot) {
    slots_.reserve(num_slots);
  }

  std::uint32_t size() const { return static_cast<std::uint32_t>(slots_.size()); }
  bool contains(Slot slot) const { return place_[slot] != kNoSlot; }
  std::size_t bytes() const { return place_.size() * (sizeof(arrival_[0]) + sizeof(place_[0]) + sizeof(Slot)); }

  void add(Slot slot) {
    arrival_[slot] = arrivals_++;
    place_[slot] = size();
    slots_.push_back(slot);
  }
  // The last takes the place of one that leaves.
  void remove(Slot slot) {
    const Slot last = slots_.back();
    slots_[place_[slot]] = last;
    place_[last] = place_[slot];
    slots_.pop_back();
    place_[slot] = kNoSlot;
  }
  void clear() {
    slots_.clear();
    place_.assign(place_.size(), kNoSlot);
    arrivals_ = draws_ = 0;
  }

  // Of `samples` that are drawn by the seed; kNoSlot when it is empty.
  template <typename Score>
  Slot lowest(std::uint32_t samples, std::uint64_t seed, Score score) {
    return draw(size(), samples, seed, draws_, score, [this](std::uint32_t at) { return slots_[at]; });
  }
  // What the next n calls would return, if each were removed and no score changed.
  template <typename Score>
  std::vector<Slot> peek(std::size_t n, std::uint32_t samples, std::uint64_t seed, Score score) const {
    std::vector<Slot> out;
    std::unordered_map<std::uint32_t, Slot> moved;  // places with another slot by then
    std::unordered_map<Slot, std::uint32_t> place;
    const auto at = [&](std::uint32_t where) {
      const auto found = moved.find(where);
      return found == moved.end() ? slots_[where] : found->second;
    };
    std::uint64_t draws = draws_;
    for (std::uint32_t left = size(); left > 0 && out.size() < n; --left) {
      const Slot slot = draw(left, samples, seed, draws, score, at);
      const Slot last = at(left - 1);
      const auto found = place.find(slot);
      const std::uint32_t hole = found == place.end() ? place_[slot] : found->second;
      moved[hole] = last;
      place[last] = hole;
      out.push_back(slot);
    }
    return out;
  }
  // In order of arrival.
  std::vector<Slot> slots() const {
    std::vector<Slot> out = slots_;
    std::sort(out.begin(), out.end(), [this](Slot a, Slot b) { return arrival_[a] < arrival_[b]; });
    return out;
  }
  std::uint64_t draws() const { return draws_; }
  void set_draws(std::uint64_t draws) { draws_ = draws; }

  void check() const {
    std::uint32_t count = 0;
    for (Slot slot = 0; slot < place_.size(); ++slot) {
      if (!contains(slot)) continue;
      ++count;
      require(place_[slot] < size() && slots_[place_[slot]] == slot, "sampled set: a slot is not at its place");
    }
    require(count == size(), "sampled set: wrong size");
  }

 private:
  template <typename Score, typename At>
  Slot draw(std::uint32_t size, std::uint32_t samples, std::uint64_t seed, std::uint64_t& draws, Score score,
            At at) const {
    Slot best = kNoSlot;
    double least = 0.0;
    for (std::uint32_t i = 0; i < std::min(size, samples); ++i) {
      const Slot slot = at(size <= samples ? i : split_mix_below(seed, draws++, size));
      const double its = score(slot);
      if (best == kNoSlot || its < least || (its == least && arrival_[slot] < arrival_[best])) {
        best = slot;
        least = its;
      }
    }
    return best;
  }

  std::vector<Slot> slots_;
  std::vector<std::uint64_t> arrival_;
  std::vector<std::uint32_t> place_;
  std::uint64_t arrivals_ = 0;
  std::uint64_t draws_ = 0;
};

}  // namespace eviction
