// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
//
// All free blocks of a pool, in the order in which they are to be reused:
//
//   blank   hold nothing that a request could find: never filled, or released
//           without a hash. Reused first, the one released last before others.
//   spare   second physical copies of a block that is resident elsewhere too:
//           evicting one loses nothing.
//   order   belongs to the policy.
//   last    without a hash, but to be kept as long as possible.
//
// The order between these four is the same under every policy; a policy decides
// within its own part only.
//
// Serving must not depend on a policy's code being right: whatever it returns is
// checked, and when it throws or returns nonsense, LRU order by time of release
// takes over for good (`failure` says why). That costs eight bytes a slot. The lists
// of the other parts have links of their own there, so that a change of policy need
// not move them; a model's use the policy's, which saves it eight bytes a slot.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "hand_over.h"
#include "policies/lru.h"
#include "policy.h"
#include "slot_list.h"
#include "successor.h"

namespace eviction {

// What the owner of the blocks knows of them at the moment of a decision. Hashes
// are dropped and copies evicted without telling the queue, so it asks then.
class Residency {
 public:
  virtual ~Residency() = default;
  // The key of the block's present content; kNoKey when it has none.
  virtual Key key(Slot slot) = 0;
  // Whether another block holds the same content.
  virtual bool duplicated(Slot slot) = 0;
  // Whether it has content at all; less to read than the content's key.
  virtual bool filled(Slot slot) { return key(slot) != kNoKey; }
  // `key` and `copies` will be asked for soon.
  virtual void prefetch(Slot) {}
  // How many blocks hold it, this one among them. An owner whose blocks lose their
  // content only after several were chosen must know the number.
  virtual std::uint32_t copies(Slot slot) { return duplicated(slot) ? 2 : 1; }
  // What is known of a block that enters the order other than by its release.
  virtual BlockInfo info(Slot) { return {}; }
};

class FreeQueue {
 public:
  enum class Order {
    // The policy's, and LRU when it fails.
    kLive,
    // vLLM's own exactly, for LRU by itself: it also orders the spare and the
    // hash-less blocks.
    kUpstream,
    // The policy's, without the means to fall back: a model may fail.
    kModel,
  };

  // `keeps_releases`: a model too knows when each block was released, for a hand-over.
  FreeQueue(std::unique_ptr<Policy> policy, Order order, bool keeps_releases = false)
      : policy_(std::move(policy)),
        order_(order),
        own_links_(order == Order::kModel ? 0 : policy_->num_slots()),
        blank_(list_links()),
        spare_(list_links()),
        last_(list_links()),
        region_(policy_->num_slots(), Region::kHeld),
        released_(order == Order::kModel && !keeps_releases ? 0 : policy_->num_slots(), 0) {
    require(order != Order::kUpstream || policy_->traits().upstream_order, "free queue: only LRU follows vLLM's order");
  }

  std::uint32_t num_slots() const { return static_cast<std::uint32_t>(region_.size()); }
  std::uint32_t size() const { return blank_.size() + spare_.size() + in_order_ + last_.size(); }
  std::size_t bytes() const {
    return policy_->bytes() + region_.size() * sizeof(Region) + released_.size() * sizeof(released_[0]) +
           own_links_.num_slots() * 2 * sizeof(Slot);
  }
  bool contains(Slot slot) const { return slot < num_slots() && region_[slot] != Region::kHeld; }
  Policy& policy() { return *policy_; }
  const Policy& policy() const { return *policy_; }
  const std::string& failure() const { return failure_; }
  std::uint64_t evictions() const { return evictions_; }
  // Queried blocks that were found among the ghosts. Only grows.
  std::uint64_t ghost_hits() const { return past_ghost_hits_ + policy_->ghost_hits(); }
  bool follows_upstream() const { return order_ == Order::kUpstream; }

  // Released without content, to be reused before all others.
  void push_blank(Slot slot) {
    release(slot);
    lose(slot);
    blank_.push_front(slot);
    region_[slot] = Region::kBlank;
  }

  // The initial filling: blank blocks in the order in which they will be used.
  void push_blank_back(Slot slot) {
    release(slot);
    blank_.push_back(slot);
    region_[slot] = Region::kBlank;
  }

  // Released for reuse later. `key` is kNoKey for a block without a hash.
  void push(Slot slot, Key key, const BlockInfo& info, bool duplicated) {
    release(slot);
    if (order_ != Order::kUpstream) {
      if (key == kNoKey) {
        lose(slot);
        last_.push_back(slot);
        region_[slot] = Region::kLast;
        return;
      }
      if (duplicated) {
        spare_.push_back(slot);
        region_[slot] = Region::kSpare;
        return;
      }
    }
    enter_order(slot, key, info);
  }

  // A request or a pin takes the block out of the free ones.
  void take(Slot slot) {
    require(contains(slot), "free queue: the block to take is not free");
    const Region region = region_[slot];
    region_[slot] = Region::kHeld;
    switch (region) {
      case Region::kBlank:
        blank_.erase(slot);
        break;
      case Region::kSpare:
        spare_.erase(slot);
        break;
      case Region::kLast:
        last_.erase(slot);
        break;
      default:
        --in_order_;
        guarded([&] { policy_->take(slot); });
        successor_.taken(slot, released(slot));
    }
  }

  // The block to reuse now. The caller makes sure that one is free.
  Slot pop(Residency& residency) {
    if (!going_.empty()) going_.clear();
    return next_victim(residency);
  }
  // The next n, for an owner who drops their contents only after all are chosen.
  template <typename Take>
  void pop_n(std::size_t n, Residency& residency, Take take) {
    if (!going_.empty()) going_.clear();
    chosen_.clear();
    for (; n > 0; --n) take(next_victim(residency, &chosen_));
    if (policy_->ghost_limit() > 0) {
      for (const Policy::Victim& victim : chosen_) residency.prefetch(victim.slot);
    }
    for (const Policy::Victim& victim : chosen_) verify(victim, residency);
  }
  // The block will soon be pushed.
  void prefetch(Slot slot, Key key) const { policy_->prefetch(key, slot); }

  // All contents are gone. Free blocks keep their order and hold nothing. What the policy
  // has learnt of the traffic stays: other contents will come and go as these did.
  void reset() {
    abandon_hand_over();
    if (order_ == Order::kUpstream) {
      const std::vector<Slot> order = policy_->peek(policy_->size());
      policy_->clear();
      for (const Slot slot : order) policy_->insert(slot, kNoKey, BlockInfo{});
      return;
    }
    std::vector<Slot> filled =
        slots_by_release([](Region region) { return region != Region::kHeld && region != Region::kBlank; });
    spare_.clear();
    last_.clear();
    in_order_ = 0;
    for (const Slot slot : filled) region_[slot] = Region::kBlank;
    const std::uint64_t counted = ghost_hits();
    guarded([&] {
      const std::vector<double> model = policy_->model();
      policy_->clear();
      policy_->load_model(model);
    });
    past_ghost_hits_ = counted - policy_->ghost_hits();
    for (const Slot slot : filled) blank_.push_back(slot);
  }

  // The next n blocks in order, fewer if fewer are free.
  std::vector<Slot> peek(std::size_t n, Residency& residency) {
    settle_spares(n, residency);
    std::vector<Slot> out;
    const auto add = [&](const SlotList& list) {
      for (Slot slot = list.front(); slot != kNoSlot && out.size() < n; slot = list.next(slot)) out.push_back(slot);
    };
    add(blank_);
    add(spare_);
    if (out.size() < n && in_order_ > 0) {
      std::vector<Slot> order;
      const std::size_t want = std::min<std::size_t>(n - out.size(), in_order_);
      const bool seen = guarded([&] {
        order = policy_->peek(want);
        require(order.size() == want, "it looked ahead at another number of blocks than there are");
        std::unordered_set<Slot> seen;
        for (const Slot slot : order) {
          require(is_ordered(slot), "it looked ahead at a block that is not evictable");
          require(seen.insert(slot).second, "it looked ahead at a block twice");
        }
      });
      if (!seen) order = policy_->peek(want);
      out.insert(out.end(), order.begin(), order.end());
    }
    add(last_);
    return out;
  }

  // ---- Change of policy; see hand_over.h. ----

  // Adds what the policy knows of the slots in [first, last). From the first slot on,
  // what is released is noted; with the last one the copy is complete, and the plan
  // is to be asked for before anything else happens to the queue.
  void copy_residents(Slot first, Slot last, std::vector<Resident>& out) {
    if (first == 0) {
      abandon_hand_over();
      successor_.watch(num_slots());
    }
    const auto copy = [&](Slot slot) {
      const Key key = policy_->key_of(slot);
      const bool evictable = region_[slot] == Region::kOrder;
      if (key != kNoKey && (evictable || region_[slot] == Region::kHeld)) {
        out.push_back({slot, key, released(slot), evictable});
      }
    };
    for (Slot slot = first; slot < last && slot < num_slots(); ++slot) copy(slot);
    if (last >= num_slots()) successor_.close_copy(clock_, copy);
  }
  // The old policy goes on until `continue_hand_over` says that the new one is in
  // charge.
  void begin_hand_over(HandOverPlan plan) {
    require(successor_.watching(), "free queue: a plan of nothing");
    successor_.begin(std::move(plan));
  }
  // False when none was begun, or a reset put an end to it.
  bool handing_over() const { return successor_.watching(); }
  // Does at most `budget` blocks' worth of work. True when the policy has changed.
  // Throws when the new policy does, and then the old one stays. `info` tells of a slot
  // what is known of its block, for one that is new to the new policy.
  template <typename Info>
  bool continue_hand_over(std::size_t budget, Info info) {
    const auto look = [this](Slot slot) {
      return Successor::Block{policy_->key_of(slot), released(slot), region_[slot] == Region::kOrder,
                              region_[slot] == Region::kHeld};
    };
    if (!successor_.work(budget, look, info)) return false;
    require(successor_.size() == in_order_, "free queue: the new policy missed a block");
    std::unique_ptr<Policy> retired = replace_policy(successor_.take_over());
    leftovers_ = successor_.end();
    leftovers_.policy = std::move(retired);
    return true;
  }
  bool continue_hand_over(std::size_t budget) {
    return continue_hand_over(budget, [](Slot) { return BlockInfo{}; });
  }
  Leftovers take_leftovers() { return std::exchange(leftovers_, {}); }
  void abandon_hand_over() {
    if (successor_.watching()) leftovers_ = successor_.end();
  }

  // LRU order by time of release takes over, for good.
  void fall_back(const char* why) {
    failure_ = why;
    abandon_hand_over();
    replace_policy(std::make_unique<Lru>(num_slots()));
    for (const Slot slot : slots_by_release([](Region region) { return region == Region::kOrder; })) {
      policy_->insert(slot, kNoKey, BlockInfo{});
    }
  }

  void admit(const Admission& request) {
    if (policy_->ghost_limit() > 0) {  // those that miss are looked up among the ghosts
      for (std::size_t i = 0; i < request.keys.size(); ++i) {
        if (request.slots[i] == kNoSlot) policy_->prefetch(request.keys[i], kNoSlot);
      }
    }
    guarded([&] { policy_->admit(request); });
    successor_.admit(request);
  }
  void finish(Serial serial, std::span<const Key> cached, double now) {
    guarded([&] { policy_->finish(serial, cached, now); });
    successor_.finish(serial, cached, now);
  }
  void advance(double now) {
    guarded([&] { policy_->advance(now); });
    successor_.advance(now);
  }

  void check() const {
    blank_.check([this](Slot slot) { require(region_[slot] == Region::kBlank, "free queue: not blank"); });
    spare_.check([this](Slot slot) { require(region_[slot] == Region::kSpare, "free queue: not spare"); });
    last_.check([this](Slot slot) { require(region_[slot] == Region::kLast, "free queue: not last"); });
    std::uint32_t free = 0;
    std::uint32_t ordered = 0;
    for (const Region region : region_) {
      free += region != Region::kHeld;
      ordered += region == Region::kOrder;
    }
    require(free == size() && ordered == in_order_, "free queue: the regions do not add up");
    require(policy_->size() == in_order_, "free queue: the policy holds other blocks");
    policy_->check();
  }

 private:
  enum class Region : std::uint8_t { kHeld, kBlank, kSpare, kOrder, kLast };

  void release(Slot slot) {
    require(slot < num_slots(), "free queue: no such block");
    require(region_[slot] == Region::kHeld, "free queue: the block is free already");
    if (!released_.empty()) released_[slot] = ++clock_;
  }
  std::uint64_t released(Slot slot) const { return released_.empty() ? 0 : released_[slot]; }
  SlotLinks& list_links() { return order_ == Order::kModel ? policy_->links() : own_links_; }

  Slot leave(SlotList& list) {
    const Slot slot = list.pop_front();
    region_[slot] = Region::kHeld;
    return slot;
  }

  // A victim of the policy is verified at once, or later by the caller.
  Slot next_victim(Residency& residency, std::vector<Policy::Victim>* unverified = nullptr) {
    require(size() > 0, "free queue: empty");
    if (!blank_.empty()) return leave(blank_);
    while (!spare_.empty()) {
      const Slot slot = leave(spare_);
      const Key key = residency.key(slot);
      if (key == kNoKey || copied(slot, key, residency)) {
        evictions_ += key != kNoKey;
        lose(slot);
        return slot;
      }
      // The other copy went first: this one counts now.
      release(slot);
      enter_order(slot, key, residency.info(slot));
    }
    if (in_order_ == 0) return leave(last_);
    const Policy::Victim victim = choose();
    if (unverified == nullptr) {
      verify(victim, residency);
    } else {
      unverified->push_back(victim);
    }
    return victim.slot;
  }
  // Whether the content stays when this block goes. Copies that were chosen a moment
  // ago and not dropped yet are no help.
  bool copied(Slot slot, Key key, Residency& residency) {
    if (!residency.duplicated(slot)) return false;
    std::uint32_t& going = going_[key];
    if (residency.copies(slot) <= 1 + going) return false;
    ++going;
    return true;
  }
  // Of copies that are all spare the last one counts, and enters the order: what
  // happens when its turn comes, done early for the first n.
  void settle_spares(std::size_t n, Residency& residency) {
    std::unordered_map<Key, std::uint32_t> going;
    std::size_t seen = 0;
    for (Slot slot = spare_.front(); slot != kNoSlot && seen < n;) {
      const Slot after = spare_.next(slot);
      const Key key = residency.key(slot);
      if (key != kNoKey && residency.copies(slot) <= 1 + going[key]) {
        spare_.erase(slot);
        region_[slot] = Region::kHeld;
        release(slot);
        enter_order(slot, key, residency.info(slot));
      } else {
        ++going[key];
        ++seen;
      }
      slot = after;
    }
  }

  void enter_order(Slot slot, Key key, const BlockInfo& info) {
    region_[slot] = Region::kOrder;
    ++in_order_;
    guarded([&] {
      const Key known = policy_->key_of(slot);
      if (known == key && key != kNoKey) {
        policy_->reinsert(slot);
      } else {
        if (known != kNoKey) policy_->forget(slot);
        policy_->insert(slot, key, info);
      }
    });
    require(!released_.empty() || !successor_.watching(),
            "free queue: needs the times of release to change its policy");
    successor_.released(slot, released(slot), info);
  }
  // The block's content is gone, other than by eviction.
  void lose(Slot slot) {
    guarded([&] { policy_->forget(slot); });
    successor_.lost(slot);
  }

  Policy::Victim choose() {
    Policy::Victim victim{kNoSlot, kNoKey};
    const bool chosen = guarded([&] {
      victim = policy_->victim();
      require(is_ordered(victim.slot), "it chose a block that is not evictable");
    });
    if (!chosen) victim = policy_->victim();  // LRU by now
    region_[victim.slot] = Region::kHeld;     // before the policy is asked again
    --in_order_;
    successor_.lost(victim.slot);
    return victim;
  }
  // Was it a loss? Not when its content was dropped while it was free, or is resident
  // elsewhere.
  void verify(const Policy::Victim& victim, Residency& residency) {
    if (policy_->ghost_limit() == 0) {
      evictions_ += residency.filled(victim.slot);
      return;
    }
    const Key content = residency.key(victim.slot);
    evictions_ += content != kNoKey;
    if (content != victim.key || copied(victim.slot, content, residency)) {
      guarded([&] { policy_->disown(victim.key); });
    }
  }
  bool is_ordered(Slot slot) const { return slot < num_slots() && region_[slot] == Region::kOrder; }

  // Runs the policy's code; on an exception LRU order takes over, and the answer
  // is false.
  template <typename Call>
  bool guarded(Call call) {
    try {
      call();
      return true;
    } catch (const std::exception& error) {
      if (order_ == Order::kModel || !failure_.empty()) throw;  // LRU itself: a bug of ours
      fall_back(error.what());
      return false;
    }
  }
  std::unique_ptr<Policy> replace_policy(std::unique_ptr<Policy> next) {
    if (order_ == Order::kModel) {  // whose lists and contents the policy keeps
      for (SlotList* list : {&blank_, &spare_, &last_}) *list = list->copied_to(next->links());
      for (Slot slot = 0; slot < num_slots(); ++slot) next->set_content(slot, policy_->content(slot));
    }
    const std::uint64_t counted = ghost_hits();
    policy_.swap(next);
    past_ghost_hits_ = counted - policy_->ghost_hits();
    return next;
  }
  template <typename Wanted>
  std::vector<Slot> slots_by_release(Wanted wanted) const {
    std::vector<Slot> slots;
    for (Slot slot = 0; slot < num_slots(); ++slot) {
      if (wanted(region_[slot])) slots.push_back(slot);
    }
    if (released_.empty()) return slots;
    std::sort(slots.begin(), slots.end(), [this](Slot a, Slot b) { return released_[a] < released_[b]; });
    return slots;
  }

  std::unique_ptr<Policy> policy_;
  Order order_;
  SlotLinks own_links_;
  SlotList blank_;
  SlotList spare_;
  SlotList last_;
  std::vector<Region> region_;
  std::vector<std::uint64_t> released_;  // clock of the last release
  std::uint64_t clock_ = 0;
  std::uint32_t in_order_ = 0;
  std::vector<Policy::Victim> chosen_;            // in this batch
  std::unordered_map<Key, std::uint32_t> going_;  // copies chosen in this batch
  std::uint64_t evictions_ = 0;
  std::uint64_t past_ghost_hits_ = 0;  // before the last reset or change of policy
  std::string failure_;
  Successor successor_;
  Leftovers leftovers_;
};

}  // namespace eviction
