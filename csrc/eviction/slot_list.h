// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
//
// Doubly linked lists over slots. The links live in two flat arrays that all
// lists of one owner share, because a slot stands in at most one of them: no
// allocation after construction, eight bytes a slot, and a block can leave the
// middle of a queue in constant time when a request takes it.
#pragma once

#include <vector>

#include "types.h"

namespace eviction {

class SlotLinks {
 public:
  explicit SlotLinks(std::uint32_t num_slots) : links_(num_slots, Link{kNoSlot, kNoSlot}) {}

  std::uint32_t num_slots() const { return static_cast<std::uint32_t>(links_.size()); }
  void prefetch(Slot slot) const { __builtin_prefetch(&links_[slot]); }

 private:
  friend class SlotList;
  // Side by side: what is done to a slot's links is done to both.
  struct Link {
    Slot prev;
    Slot next;
  };
  std::vector<Link> links_;
};

class SlotList {
 public:
  // All there is to a list but its links: for who has many.
  struct Ends {
    Slot front = kNoSlot;
    Slot back = kNoSlot;
    std::uint32_t size = 0;
  };

  explicit SlotList(SlotLinks& links) : links_(&links) {}
  SlotList(SlotLinks& links, const Ends& ends)
      : links_(&links), front_(ends.front), back_(ends.back), size_(ends.size) {}

  Ends ends() const { return {front_, back_, size_}; }
  bool empty() const { return size_ == 0; }
  std::uint32_t size() const { return size_; }
  Slot front() const { return front_; }
  Slot back() const { return back_; }
  Slot next(Slot slot) const { return link(slot).next; }
  Slot previous(Slot slot) const { return link(slot).prev; }

  void push_back(Slot slot) {
    link(slot) = {back_, kNoSlot};
    (back_ == kNoSlot ? front_ : link(back_).next) = slot;
    back_ = slot;
    ++size_;
  }

  void push_front(Slot slot) {
    link(slot) = {kNoSlot, front_};
    (front_ == kNoSlot ? back_ : link(front_).prev) = slot;
    front_ = slot;
    ++size_;
  }

  void erase(Slot slot) {
    const auto [before, after] = link(slot);
    (before == kNoSlot ? front_ : link(before).next) = after;
    (after == kNoSlot ? back_ : link(after).prev) = before;
    --size_;
  }

  Slot pop_front() {
    const Slot slot = front_;
    erase(slot);
    return slot;
  }

  void clear() {
    front_ = back_ = kNoSlot;
    size_ = 0;
  }

  // The same slots in the same order over other links.
  SlotList copied_to(SlotLinks& links) const {
    SlotList copy(links);
    for (Slot slot = front_; slot != kNoSlot; slot = next(slot)) copy.push_back(slot);
    return copy;
  }

  // Walks the list both ways and counts; calls `visit` on each slot.
  template <typename Visit>
  void check(Visit visit) const {
    std::uint32_t count = 0;
    Slot before = kNoSlot;
    for (Slot slot = front_; slot != kNoSlot; slot = next(slot)) {
      require(link(slot).prev == before, "slot list: a link back is wrong");
      require(++count <= size_, "slot list: longer than its size");
      visit(slot);
      before = slot;
    }
    require(back_ == before, "slot list: the back is wrong");
    require(count == size_, "slot list: shorter than its size");
  }

 private:
  SlotLinks::Link& link(Slot slot) { return links_->links_[slot]; }
  const SlotLinks::Link& link(Slot slot) const { return links_->links_[slot]; }

  SlotLinks* links_;
  Slot front_ = kNoSlot;
  Slot back_ = kNoSlot;
  std::uint32_t size_ = 0;
};

}  // namespace eviction
