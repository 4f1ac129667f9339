// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
//
// The queues of a policy, and a byte for each slot: to which queue it belongs, whether
// it stands there now, because a request may hold it, and a note of four bits that is
// the policy's own. A block comes back to the queue to which it belongs.
#pragma once

#include <array>
#include <cstddef>
#include <utility>
#include <vector>

#include "slot_list.h"
#include "types.h"

namespace eviction {

template <std::uint8_t kQueues>
class QueueSet {
  static_assert(kQueues <= 8, "three bits tell the queues apart");

 public:
  explicit QueueSet(SlotLinks& links)
      : lists_(make(links, std::make_index_sequence<kQueues>())), state_(links.num_slots(), 0) {}

  const SlotList& operator[](std::uint8_t queue) const { return lists_[queue]; }
  std::uint32_t size() const {
    std::uint32_t size = 0;
    for (const SlotList& list : lists_) size += list.size();
    return size;
  }
  std::size_t bytes() const { return state_.size(); }

  std::uint8_t queue_of(Slot slot) const { return state_[slot] >> kQueueShift & 7; }
  std::uint8_t note(Slot slot) const { return state_[slot] & kNote; }
  bool queued(Slot slot) const { return state_[slot] & kQueued; }

  // At most 15.
  void set_note(Slot slot, std::uint8_t note) {
    state_[slot] = static_cast<std::uint8_t>((state_[slot] & ~kNote) | note);
  }
  // Where a slot that stands in no queue belongs from now on.
  void assign(Slot slot, std::uint8_t queue) {
    state_[slot] = static_cast<std::uint8_t>((state_[slot] & ~kQueue) | queue << kQueueShift);
  }
  void enqueue(Slot slot) {
    lists_[queue_of(slot)].push_back(slot);
    state_[slot] |= kQueued;
  }
  void dequeue(Slot slot) {
    lists_[queue_of(slot)].erase(slot);
    state_[slot] &= static_cast<std::uint8_t>(~kQueued);
  }
  // From its place to the end of a queue.
  void move(Slot slot, std::uint8_t queue) {
    lists_[queue_of(slot)].erase(slot);
    assign(slot, queue);
    lists_[queue].push_back(slot);
  }
  // The slot is as if it had never been here.
  void drop(Slot slot) {
    if (queued(slot)) lists_[queue_of(slot)].erase(slot);
    state_[slot] = 0;
  }
  void clear() {
    for (SlotList& list : lists_) list.clear();
    state_.assign(state_.size(), 0);
  }

  // The first n, one queue after the other.
  std::vector<Slot> peek(std::size_t n) const {
    std::vector<Slot> out;
    for (const SlotList& list : lists_) {
      for (Slot slot = list.front(); slot != kNoSlot && out.size() < n; slot = list.next(slot)) out.push_back(slot);
    }
    return out;
  }
  // Every slot in the order of the queues, then those that are known but in none.
  template <typename Knows, typename Visit>
  void each(Knows knows, Visit visit) const {
    for (const SlotList& list : lists_) {
      for (Slot slot = list.front(); slot != kNoSlot; slot = list.next(slot)) visit(slot);
    }
    for (Slot slot = 0; slot < state_.size(); ++slot) {
      if (!queued(slot) && knows(slot)) visit(slot);
    }
  }
  template <typename Knows>
  void check(Knows knows) const {
    for (std::uint8_t queue = 0; queue < kQueues; ++queue) {
      lists_[queue].check([&](Slot slot) {
        require(queued(slot) && queue_of(slot) == queue, "queue set: a block is in the wrong queue");
      });
    }
    std::uint32_t count = 0;
    for (Slot slot = 0; slot < state_.size(); ++slot) {
      if (!queued(slot)) continue;
      ++count;
      require(knows(slot), "queue set: an evictable block has no key");
    }
    require(count == size(), "queue set: an evictable block is in no queue");
  }

 private:
  static constexpr std::uint8_t kNote = 0x0f;
  static constexpr std::uint8_t kQueue = 0x70;
  static constexpr int kQueueShift = 4;
  static constexpr std::uint8_t kQueued = 0x80;

  template <std::size_t... kEach>
  static std::array<SlotList, kQueues> make(SlotLinks& links, std::index_sequence<kEach...>) {
    return {(static_cast<void>(kEach), SlotList(links))...};
  }

  std::array<SlotList, kQueues> lists_;
  std::vector<std::uint8_t> state_;
};

}  // namespace eviction
