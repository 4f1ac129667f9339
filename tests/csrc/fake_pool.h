// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
//
// Random traffic for a FreeQueue, with what vLLM does to contents behind its back:
// hashes are dropped and replaced, blocks get second copies, several blocks lose
// their content only after all were chosen. It knows what is free by itself and
// holds the queue against that.
#pragma once

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "free_queue.h"
#include "policies/catalogue.h"

namespace eviction {

class FakePool final : private Residency {
 public:
  FakePool(std::unique_ptr<Policy> policy, FreeQueue::Order order, std::uint64_t seed)
      : queue_(std::move(policy), order),
        random_(seed),
        content_(queue_.num_slots(), kNoKey),
        held_(content_.size(), 0) {
    for (Slot slot = 0; slot < queue_.num_slots(); ++slot) queue_.push_blank_back(slot);
  }

  FreeQueue& queue() { return queue_; }
  // For a policy that is meant to stay until it fails.
  void forbid_hand_over() { may_hand_over_ = false; }

  // One random event.
  void step() {
    switch (below(16)) {
      case 0:
      case 1:
      case 2:
      case 3:
        allocate(1 + below(4));
        break;
      case 4:
      case 5:
      case 6:
      case 7:
      case 8:
        release_request();
        break;
      case 9:
      case 10:
        hit();
        break;
      case 11:
        admit();
        break;
      case 12:
        lose_content();
        break;
      case 13:
        look_ahead();
        break;
      case 14:
        hand_over();
        break;
      default:
        if (below(40) == 0) reset();
        queue_.finish(below(100), {}, 0.0);
        queue_.advance(0.0);
    }
  }

  void check() {
    queue_.check();
    std::uint32_t free = 0;
    for (Slot slot = 0; slot < held_.size(); ++slot) {
      require((held_[slot] == 0) == queue_.contains(slot), "fake pool: the queue has another idea of what is free");
      free += held_[slot] == 0;
    }
    require(free == queue_.size(), "fake pool: free blocks are missing");
    require(queue_.policy().num_ghosts() <= queue_.policy().ghost_limit(), "fake pool: too many ghosts");
  }

 private:
  std::uint64_t below(std::uint64_t bound) { return random_() % bound; }

  // ---- Events. ----

  void allocate(std::size_t n) {
    n = std::min<std::size_t>(n, queue_.size());
    std::vector<Slot> blocks;
    queue_.pop_n(n, *this, [&](Slot slot) { blocks.push_back(slot); });
    for (const Slot slot : blocks) {
      require(held_[slot] == 0, "fake pool: a block in use was chosen, or one twice");
      held_[slot] = 1;
    }
    for (const Slot slot : blocks) set_content(slot, kNoKey);
    // Not all blocks fill up; some fill with what is resident already.
    for (const Slot slot : blocks) set_content(slot, below(8) == 0 ? kNoKey : random_key());
    if (!blocks.empty()) requests_.push_back(blocks);
  }

  // Tail first. What has no content is reused first, or kept as the last resort.
  void release_request() {
    if (requests_.empty()) return;
    const std::size_t at = below(requests_.size());
    std::vector<Slot> blocks = requests_[at];
    requests_.erase(requests_.begin() + static_cast<std::ptrdiff_t>(at));
    for (; !blocks.empty(); blocks.pop_back()) {
      const Slot slot = blocks.back();
      if (--held_[slot] > 0) continue;
      if (content_[slot] == kNoKey && below(2) == 0) {
        queue_.push_blank(slot);
      } else {
        queue_.push(slot, content_[slot], BlockInfo{.depth = 16}, content_[slot] != kNoKey && duplicated(slot));
      }
    }
  }

  // A request is given resident blocks; sometimes it is a pin that no one admits.
  void hit() {
    std::vector<Slot> blocks;
    std::vector<Key> keys;
    for (std::uint64_t n = 1 + below(3); n > 0; --n) {
      const Slot slot = static_cast<Slot>(below(held_.size()));
      if (content_[slot] == kNoKey || std::find(blocks.begin(), blocks.end(), slot) != blocks.end()) continue;
      if (held_[slot] == 0) queue_.take(slot);
      ++held_[slot];
      blocks.push_back(slot);
      keys.push_back(content_[slot]);
    }
    if (blocks.empty()) return;
    if (below(4) != 0) queue_.admit({++serial_, keys, blocks, 0.0});
    requests_.push_back(blocks);
  }

  // A request that has to compute all: its keys may be ghosts.
  void admit() {
    std::vector<Key> keys;
    for (std::uint64_t n = below(4); n > 0; --n) keys.push_back(random_key());
    const std::vector<Slot> slots(keys.size(), kNoSlot);
    queue_.admit({++serial_, keys, slots, 0.0});
  }

  // Dropped, or replaced by other content while in use.
  void lose_content() {
    const Slot slot = static_cast<Slot>(below(held_.size()));
    set_content(slot, held_[slot] > 0 && below(2) == 0 ? random_key() : kNoKey);
  }

  // What was foretold comes true.
  void look_ahead() {
    const std::size_t n = below(queue_.size() + 2);
    const std::vector<Slot> expected = queue_.peek(n, *this);
    require(expected.size() == std::min<std::size_t>(n, queue_.size()), "fake pool: looked ahead at another number");
    if (below(2) == 0) return;
    std::vector<Slot> blocks;
    queue_.pop_n(expected.size(), *this, [&](Slot slot) { blocks.push_back(slot); });
    require(blocks == expected, "fake pool: other blocks were chosen than foretold");
    for (const Slot slot : blocks) {
      held_[slot] = 1;
      set_content(slot, kNoKey);
    }
    if (!blocks.empty()) requests_.push_back(blocks);
  }

  // To a random policy, whose shadow knows the keys in another order; in slices,
  // between which the traffic goes on.
  void hand_over() {
    if (!may_hand_over_ || queue_.follows_upstream() || !queue_.failure().empty()) return;
    if (queue_.handing_over()) {
      if (below(8) == 0) {
        queue_.abandon_hand_over();
      } else if (queue_.continue_hand_over(1 + below(3))) {
        queue_.take_leftovers();
      }
      return;
    }
    if (below(16) != 0) return;
    const std::vector<std::string> names = native_policies();
    const std::string& name = names[below(names.size())];
    const auto shadow = make_policy(name, queue_.num_slots(), {});
    std::set<Key> seen;
    for (Slot slot = 0; slot < queue_.num_slots(); ++slot) {
      const Key key = random_key();
      if (seen.insert(key).second) shadow->insert(slot, key, BlockInfo{});
    }
    for (std::uint64_t n = below(seen.size() + 1); n > 0; --n) shadow->victim();
    std::vector<Resident> residents;
    queue_.copy_residents(0, queue_.num_slots(), residents);
    queue_.begin_hand_over(plan_hand_over(make_policy(name, queue_.num_slots(), {}), shadow->snapshot(), residents));
  }

  // As in vLLM, only when no request holds a block.
  void reset() {
    while (!requests_.empty()) release_request();
    for (Slot slot = 0; slot < content_.size(); ++slot) set_content(slot, kNoKey);
    queue_.reset();
  }

  // ---- Contents. ----

  Key random_key() { return 1 + below(2 * content_.size() + 2); }
  void set_content(Slot slot, Key key) {
    if (content_[slot] != kNoKey && --num_copies_[content_[slot]] == 0) num_copies_.erase(content_[slot]);
    content_[slot] = key;
    if (key != kNoKey) ++num_copies_[key];
  }
  Key key(Slot slot) override { return content_[slot]; }
  bool duplicated(Slot slot) override { return copies(slot) > 1; }
  std::uint32_t copies(Slot slot) override {
    const auto found = num_copies_.find(content_[slot]);
    return found == num_copies_.end() ? 0 : found->second;
  }

  FreeQueue queue_;
  std::mt19937_64 random_;
  std::vector<Key> content_;
  std::vector<std::uint32_t> held_;
  std::map<Key, std::uint32_t> num_copies_;
  std::vector<std::vector<Slot>> requests_;  // the blocks that each holds
  Serial serial_ = 0;
  bool may_hand_over_ = true;
};

}  // namespace eviction
