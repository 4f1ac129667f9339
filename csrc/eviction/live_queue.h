// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
//
// vLLM's free-queue interface over a FreeQueue: block objects in, block objects
// out. One call from Python handles a whole list of blocks. What vLLM does to
// hashes behind the queue's back (eviction by a connector, promotion from partial
// to full, reset) is read from the blocks when it matters.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <utility>
#include <vector>

#include "block_objects.h"
#include "free_queue.h"
#include "shadow_host.h"

namespace eviction {

class LiveQueue final : private Residency {
 public:
  // `blocks`: the pool's list, index = block id. Starts with no free block.
  LiveQueue(nb::list blocks, nb::object block_pool, std::unique_ptr<Policy> policy, bool follow_upstream,
            RecomputeCost cost = {})
      : blocks_(blocks),
        reader_(nb::handle(reinterpret_cast<PyObject*>(Py_TYPE(blocks[0].ptr())))),
        map_(std::move(block_pool)),
        queue_(std::move(policy), follow_upstream ? FreeQueue::Order::kUpstream : FreeQueue::Order::kLive),
        cost_(cost) {}

  // Writable, as in vLLM's queue: its tests assign it.
  std::int64_t num_free_blocks = 0;

  // ---- vLLM's interface. ----

  nb::object popleft() {
    sync();
    if (queue_.size() == 0) throw nb::value_error("No free blocks available");
    --num_free_blocks;
    return block(queue_.pop(*this));
  }
  nb::list popleft_n(std::int64_t n) {
    sync();
    if (n < 0 || n > queue_.size()) {
      throw nb::value_error(
          ("cannot pop " + std::to_string(n) + " of " + std::to_string(queue_.size()) + " free blocks").c_str());
    }
    nb::list out = nb::steal<nb::list>(PyList_New(n));
    Py_ssize_t at = 0;
    queue_.pop_n(static_cast<std::size_t>(n), *this,
                 [&](Slot slot) { PyList_SET_ITEM(out.ptr(), at++, block(slot).release().ptr()); });
    num_free_blocks -= n;
    return out;
  }
  void remove(nb::handle block) {
    const Slot slot = reader_.slot(block);
    if (!queue_.contains(slot)) throw BrokenInvariant("remove() of a block that is not free");
    queue_.take(slot);
    --num_free_blocks;
  }
  void append(nb::handle block) {
    sync();
    push(read(block));
  }
  void append_n(nb::list blocks) {
    sync();
    // Read all blocks before the first is pushed: see KeyIndex::prefetch.
    for (nb::handle block : blocks) reader_.prefetch_hash(block);
    released_.clear();
    for (nb::handle block : blocks) {
      released_.push_back(read(block));
      queue_.prefetch(released_.back().slot, released_.back().key);
    }
    for (const Released& block : released_) push(block);
  }
  // The first of the list is the first to be reused.
  void prepend_n(nb::list blocks) {
    for (std::size_t i = blocks.size(); i-- > 0;) {
      queue_.push_blank(reader_.slot(blocks[i]));
      ++num_free_blocks;
    }
  }
  nb::list peek(std::size_t n) {
    sync();
    nb::list out;
    for (const Slot slot : queue_.peek(n, *this)) out.append(block(slot));
    return out;
  }

  bool contains(nb::handle block) { return queue_.contains(reader_.slot(block)); }

  // ---- What the scheduler tells. ----

  // The free blocks at the start, in vLLM's order.
  void fill(nb::list blocks) {
    for (nb::handle block : blocks) {
      if (!queue_.follows_upstream() && reader_.hash(block).is_none()) {
        queue_.push_blank_back(reader_.slot(block));
        ++num_free_blocks;
      } else {
        push(read(block));
      }
    }
  }
  // Feeds these shadows with the same requests. Kept alive by the caller.
  void attach(ShadowHost* shadows) { shadows_ = shadows; }

  // For each KV-cache group its id, the request's hashes at the group's block
  // size, the request's blocks, and how many of them it was given. `num_blocks`: that
  // it holds by now, of one group. `runs`: what it was given behind holes, of the only
  // group: the first block's place, and the blocks.
  void admit(Serial serial, nb::list groups, std::uint32_t prompt_tokens, std::uint32_t num_blocks, double now,
             nb::list runs) {
    sync();
    keys_.clear();
    all_keys_.clear();
    slots_.clear();
    std::size_t first_group = 0;
    for (nb::handle group : groups) {
      const auto id = nb::cast<std::uint64_t>(group[0]);
      const nb::list hashes = nb::cast<nb::list>(group[1]);
      const nb::sequence given = nb::cast<nb::sequence>(group[2]);
      const auto num_hits = nb::cast<std::size_t>(group[3]);
      for (std::size_t i = 0; i < hashes.size(); ++i) {
        const Key key = key_of_request_hash(hashes[i], id);
        all_keys_.push_back(key);
        Slot slot = kNoSlot;
        if (i < num_hits) {
          const nb::object block = given[i];
          slot = slot_of(block);
          // Outside a sliding window nothing is kept, and nothing was asked for.
          if (reader_.hash(block).is_none()) continue;
          if (first_group == 0) saved_ += cost_(reader_.depth(block));
        }
        keys_.push_back(key);
        slots_.push_back(slot);
      }
      if (first_group == 0) first_group = keys_.size();
    }
    for (nb::handle run : runs) {
      std::size_t place = nb::cast<std::size_t>(run[0]);
      for (nb::handle block : nb::cast<nb::list>(run[1])) {
        slots_.at(place++) = slot_of(block);
        saved_ += cost_(reader_.depth(block));
      }
    }
    queue_.admit({serial, keys_, slots_, now, first_group});
    if (shadows_ != nullptr) shadows_->admit(serial, all_keys_, prompt_tokens, num_blocks, now);
  }
  void grow(Serial serial, std::uint32_t num_blocks) {
    if (shadows_ != nullptr) shadows_->grow(serial, num_blocks);
  }
  // For each group its id and the hashes of the blocks that the request filled.
  void finish(Serial serial, nb::list groups, double now) {
    keys_.clear();
    for (nb::handle group : groups) {
      const auto id = nb::cast<std::uint64_t>(group[0]);
      for (nb::handle hash : nb::cast<nb::list>(group[1])) keys_.push_back(key_of_request_hash(hash, id));
    }
    queue_.finish(serial, keys_, now);
    if (shadows_ != nullptr) shadows_->finish(serial, keys_, now);
  }
  void advance(double now) { queue_.advance(now); }
  // What the hits so far would have cost to compute, in units of one block at depth zero.
  double saved() const { return saved_; }
  // Notices a reset of the prefix cache that happened since the last call.
  void sync() {
    if (!map_.refresh()) return;
    queue_.reset();
    discard_leftovers();
    if (shadows_ != nullptr) shadows_->reset();
  }

  // ---- Change of policy, in slices; see hand_over.h. ----

  // Copies what the slots [first, first + count) hold. True when all are copied.
  bool copy_residents(Slot first, std::uint32_t count) {
    if (first == 0) {
      queue_.abandon_hand_over();
      discard_leftovers();
      // Growing would copy it within a step; what is released meanwhile is in it twice.
      residents_.reserve(2 * std::size_t{queue_.num_slots()});
    }
    queue_.copy_residents(first, first + count, residents_);
    return first + count >= queue_.num_slots();
  }
  void ask_for_plan(std::size_t candidate) {
    require(shadows_ != nullptr, "live queue: no shadows to plan with");
    shadows_->ask_for_plan(candidate, queue_.num_slots(), std::exchange(residents_, {}));
  }
  // True when the plan is there, and from now on carried out.
  bool begin_hand_over() {
    require(shadows_ != nullptr, "live queue: no shadows to plan with");
    std::optional<HandOverPlan> plan = shadows_->poll_plan();
    if (plan.has_value()) queue_.begin_hand_over(std::move(*plan));
    return plan.has_value();
  }
  bool continue_hand_over(std::size_t budget) {
    const bool changed = queue_.continue_hand_over(budget, [this](Slot slot) { return info(slot); });
    discard_leftovers();
    return changed;
  }
  void abandon_hand_over() {
    queue_.abandon_hand_over();
    discard_leftovers();
  }
  // LRU order by time of release, at once; the policy is not asked any more.
  void use_lru(const std::string& why) { queue_.fall_back(why.c_str()); }

  void check() {
    sync();
    queue_.check();
    require(num_free_blocks == queue_.size(), "live queue: num_free_blocks is out of step");
  }
  FreeQueue& queue() { return queue_; }

  // For Python's cycle collector.
  int traverse(visitproc visit, void* arg) const {
    Py_VISIT(blocks_.ptr());
    return map_.traverse(visit, arg);
  }
  void clear() {
    blocks_.reset();
    map_.clear();
  }

 private:
  // Residency.
  Key key(Slot slot) override { return key_of_block_hash(reader_.hash(blocks_[slot])); }
  bool filled(Slot slot) override { return !reader_.hash(blocks_[slot]).is_none(); }
  void prefetch(Slot slot) override { reader_.prefetch_hash(blocks_[slot]); }
  bool duplicated(Slot slot) override { return copies(slot) > 1; }
  std::uint32_t copies(Slot slot) override { return map_.copies(reader_.hash(blocks_[slot])); }
  BlockInfo info(Slot slot) override { return info_at(reader_.depth(blocks_[slot])); }
  BlockInfo info_at(std::uint32_t depth) const { return {.depth = depth, .cost = cost_(depth)}; }

  // The shadows' thread frees them: for a large pool that takes milliseconds.
  void discard_leftovers() {
    Leftovers leftovers = queue_.take_leftovers();
    leftovers.residents = std::exchange(residents_, {});
    if (shadows_ != nullptr && !leftovers.empty()) shadows_->discard(std::move(leftovers));
  }

  // A policy looks it up in tables, and does not ask whether it is there.
  Slot slot_of(nb::handle block) const {
    const Slot slot = reader_.slot(block);
    if (slot >= queue_.num_slots()) throw BrokenInvariant("admit() with a block of another pool");
    return slot;
  }
  nb::object block(Slot slot) const { return nb::borrow(PyList_GET_ITEM(blocks_.ptr(), slot)); }

  struct Released {
    Slot slot;
    std::uint32_t depth;
    Key key;
    bool duplicated;
  };
  Released read(nb::handle block) const {
    const nb::object hash = reader_.hash(block);
    return {reader_.slot(block), reader_.depth(block), key_of_block_hash(hash),
            !hash.is_none() && map_.copies(hash) > 1};
  }
  void push(const Released& block) {
    queue_.push(block.slot, block.key, info_at(block.depth), block.duplicated);
    ++num_free_blocks;
  }

  nb::list blocks_;
  BlockReader reader_;
  HashMap map_;
  FreeQueue queue_;
  RecomputeCost cost_;
  ShadowHost* shadows_ = nullptr;
  std::vector<Resident> residents_;
  std::vector<Released> released_;
  std::vector<Key> keys_;
  std::vector<Key> all_keys_;
  std::vector<Slot> slots_;
  double saved_ = 0.0;
};

}  // namespace eviction
