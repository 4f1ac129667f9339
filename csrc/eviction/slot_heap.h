// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
//
// Slots by score, lowest first, and among equals in order of arrival: a total order,
// so that nothing depends on how the heap happens to lie. A slot can leave from the
// middle, because a request takes it, in O(log n). It keeps its score meanwhile.
#pragma once

#include <queue>
#include <tuple>
#include <vector>

#include "types.h"

namespace eviction {

template <typename Score>
class SlotHeap {
 public:
  explicit SlotHeap(std::uint32_t num_slots)
      : score_(num_slots, Score{}), arrival_(num_slots, 0), place_(num_slots, kNoSlot) {
    heap_.reserve(num_slots);
  }

  std::uint32_t size() const { return static_cast<std::uint32_t>(heap_.size()); }
  bool contains(Slot slot) const { return place_[slot] != kNoSlot; }
  Score score(Slot slot) const { return score_[slot]; }
  std::size_t bytes() const {
    return score_.size() * (sizeof(Score) + sizeof(arrival_[0]) + sizeof(place_[0]) + sizeof(Slot));
  }
  // There must be one.
  Slot lowest() const { return heap_.front(); }

  // Of a slot that is not in the heap.
  void set_score(Slot slot, Score score) { score_[slot] = score; }

  void push(Slot slot) {
    arrival_[slot] = arrivals_++;
    place_[slot] = size();
    heap_.push_back(slot);
    rise(place_[slot]);
  }
  void erase(Slot slot) {
    const std::uint32_t hole = place_[slot];
    place_[slot] = kNoSlot;
    const Slot last = heap_.back();
    heap_.pop_back();
    if (last == slot) return;
    put(hole, last);
    rise(hole);
    sink(place_[last]);
  }
  void clear() {
    heap_.clear();
    score_.assign(score_.size(), Score{});
    place_.assign(place_.size(), kNoSlot);
    arrivals_ = 0;
  }

  // The first n in order, without changing anything: O(n log n).
  std::vector<Slot> peek(std::size_t n) const {
    std::vector<Slot> out;
    const auto later = [this](std::uint32_t a, std::uint32_t b) { return before(heap_[b], heap_[a]); };
    std::priority_queue<std::uint32_t, std::vector<std::uint32_t>, decltype(later)> frontier(later);
    if (!heap_.empty()) frontier.push(0);
    while (out.size() < n && !frontier.empty()) {
      const std::uint32_t at = frontier.top();
      frontier.pop();
      out.push_back(heap_[at]);
      for (const std::uint32_t child : {2 * at + 1, 2 * at + 2}) {
        if (child < size()) frontier.push(child);
      }
    }
    return out;
  }

  void check() const {
    for (std::uint32_t at = 0; at < size(); ++at) {
      require(place_[heap_[at]] == at, "slot heap: a slot is not at its place");
      require(at == 0 || before(heap_[(at - 1) / 2], heap_[at]), "slot heap: out of order");
    }
    std::uint32_t count = 0;
    for (const std::uint32_t place : place_) count += place != kNoSlot;
    require(count == size(), "slot heap: a slot has a place but is not there");
  }

 private:
  bool before(Slot a, Slot b) const { return std::tie(score_[a], arrival_[a]) < std::tie(score_[b], arrival_[b]); }
  void put(std::uint32_t at, Slot slot) {
    heap_[at] = slot;
    place_[slot] = at;
  }
  void rise(std::uint32_t at) {
    const Slot slot = heap_[at];
    for (; at > 0 && before(slot, heap_[(at - 1) / 2]); at = (at - 1) / 2) put(at, heap_[(at - 1) / 2]);
    put(at, slot);
  }
  void sink(std::uint32_t at) {
    const Slot slot = heap_[at];
    for (std::uint32_t child = 2 * at + 1; child < size(); child = 2 * at + 1) {
      if (child + 1 < size() && before(heap_[child + 1], heap_[child])) ++child;
      if (!before(heap_[child], slot)) break;
      put(at, heap_[child]);
      at = child;
    }
    put(at, slot);
  }

  std::vector<Score> score_;
  std::vector<std::uint64_t> arrival_;
  std::vector<std::uint32_t> place_;
  std::vector<Slot> heap_;
  std::uint64_t arrivals_ = 0;
};

}  // namespace eviction
