// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
//
// A list of slots for each of a small number of ranks, and a bit for each list that is
// not empty: the lowest rank is found without a search and without a list of lists,
// which in the engine would be walked, because a block can rise by many ranks while it
// is held. The owner knows the rank of a slot.
#pragma once

#include <array>
#include <bit>
#include <vector>

#include "slot_list.h"
#include "types.h"

namespace eviction {

template <std::uint32_t kRanks>
class RankedLists {
  static_assert(kRanks % 64 == 0);

 public:
  explicit RankedLists(SlotLinks& links) : lists_(kRanks, SlotList(links)) {}

  std::uint32_t size() const { return size_; }
  std::size_t bytes() const { return lists_.size() * sizeof(SlotList); }
  const SlotList& operator[](std::uint32_t rank) const { return lists_[rank]; }

  void push_back(std::uint32_t rank, Slot slot) {
    lists_[rank].push_back(slot);
    filled_[rank / 64] |= std::uint64_t{1} << (rank % 64);
    ++size_;
  }
  void erase(std::uint32_t rank, Slot slot) {
    lists_[rank].erase(slot);
    if (lists_[rank].empty()) filled_[rank / 64] &= ~(std::uint64_t{1} << (rank % 64));
    --size_;
  }
  // The first rank with a slot, from this one on and round. There must be a slot.
  std::uint32_t lowest(std::uint32_t from = 0) const {
    const std::uint64_t head = filled_[from / 64] >> (from % 64);
    if (head != 0) return from + static_cast<std::uint32_t>(std::countr_zero(head));
    std::uint32_t word = from / 64;
    do {
      word = (word + 1) % filled_.size();
    } while (filled_[word] == 0);
    return word * 64 + static_cast<std::uint32_t>(std::countr_zero(filled_[word]));
  }
  void clear() {
    for (SlotList& list : lists_) list.clear();
    filled_.fill(0);
    size_ = 0;
  }
  // Calls `visit` with the rank and each slot that has it.
  template <typename Visit>
  void check(Visit visit) const {
    std::uint32_t count = 0;
    for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
      lists_[rank].check([&](Slot slot) { visit(rank, slot); });
      require(lists_[rank].empty() == !(filled_[rank / 64] >> (rank % 64) & 1), "ranked lists: the bitmap is wrong");
      count += lists_[rank].size();
    }
    require(count == size_, "ranked lists: wrong size");
  }

 private:
  std::vector<SlotList> lists_;
  std::array<std::uint64_t, kRanks / 64> filled_{};  // a bit for each list
  std::uint32_t size_ = 0;
};

}  // namespace eviction
