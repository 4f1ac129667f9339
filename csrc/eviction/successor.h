// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
//
// The policy that is to take over a free queue, while the old one still chooses
// victims; see hand_over.h. It carries out a plan that is older than the queue: a
// block that was released since the plan was asked for is not in it, or stands where
// the shadow had it before. Such a block *waits*: its release is noted, and it enters
// behind the plan, in order of release. No mark is kept for it, because the clock of
// its last release says it: the notes are worked off in order of that clock.
//
// The old policy must not suffer from the new one: when that throws, the hand-over is
// off, and whoever carries it on is told why.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "hand_over.h"
#include "key_index.h"
#include "policy.h"

namespace eviction {

// A block that became evictable, at this time of the queue's clock.
struct Arrival {
  Slot slot;
  std::uint64_t clock;
  BlockInfo info;
};

// What a hand-over leaves behind: megabytes, to be freed where no one waits.
struct Leftovers {
  std::unique_ptr<Policy> policy;
  std::vector<HandOverPlan::Item> plan;
  std::vector<Resident> residents;
  std::vector<Arrival> arrivals;
  bool empty() const { return policy == nullptr && plan.empty() && residents.empty() && arrivals.empty(); }
};

class Successor {
 public:
  // A block as the queue and the old policy have it now.
  struct Block {
    Key key;                 // kNoKey when it is not known
    std::uint64_t released;  // clock of its last release
    bool evictable;
    bool held;
  };

  // Residents are being copied, or a plan is waited for or carried out.
  bool watching() const { return watching_; }
  void watch(std::uint32_t num_slots) {
    watching_ = true;
    failure_.clear();
    arrivals_.reserve(num_slots);  // to grow would copy megabytes within a step
  }
  // All residents are copied, those that were released meanwhile twice: the plan will
  // be of now. Calls `copy` with each of the latter.
  template <typename Copy>
  void close_copy(std::uint64_t clock, Copy copy) {
    for (const Arrival& arrival : arrivals_) copy(arrival.slot);
    arrivals_.clear();
    reached_ = clock;
  }
  void begin(HandOverPlan plan) {
    policy_ = std::move(plan.next);
    plan_ = std::move(plan.items);
  }

  // ---- What happens to the queue meanwhile. ----

  void released(Slot slot, std::uint64_t clock, const BlockInfo& info) {
    if (watching_) arrivals_.push_back({slot, clock, info});
  }
  // It is held again; `clock` is that of the release which that ends.
  void taken(Slot slot, std::uint64_t clock) {
    guarded([&] {
      if (policy_->key_of(slot) != kNoKey && !waits(clock)) policy_->take(slot);
    });
  }
  // Its content is gone, or about to go.
  void lost(Slot slot) {
    guarded([&] { policy_->forget(slot); });
  }
  void admit(const Admission& request) {
    guarded([&] { policy_->admit(request); });
  }
  void finish(Serial serial, std::span<const Key> cached, double now) {
    guarded([&] { policy_->finish(serial, cached, now); });
  }
  void advance(double now) {
    guarded([&] { policy_->advance(now); });
  }

  // Does at most `budget` blocks' worth of work; `look` gives the Block of a slot, `info`
  // what is known of one that is new. True when nothing is left to do. Throws what went
  // wrong, once.
  template <typename Look, typename Info>
  bool work(std::size_t budget, Look look, Info info) {
    if (policy_ != nullptr) {
      guarded([&] {
        for (; budget > 0 && placed_ < plan_.size(); --budget) {
          if (placed_ + kAhead < plan_.size()) {
            const HandOverPlan::Item& later = plan_[placed_ + kAhead];
            policy_->prefetch(later.entry.key, later.slot);
          }
          place(plan_[placed_++], look, info);
        }
        for (; budget > 0 && arrived_ < arrivals_.size(); --budget) enter(arrivals_[arrived_++], look);
        if (budget > 0) ended_ = policy_->end_adoption(budget);
      });
    }
    if (!failure_.empty()) throw BrokenInvariant(std::exchange(failure_, {}).c_str());
    return policy_ != nullptr && ended_ && placed_ == plan_.size() && arrived_ == arrivals_.size();
  }
  std::uint32_t size() const { return policy_->size(); }
  std::unique_ptr<Policy> take_over() { return std::move(policy_); }

  // Back to the start. Returns what was made for nothing, or has served.
  Leftovers end() {
    Leftovers leftovers{std::move(policy_), std::move(plan_), {}, std::move(arrivals_)};
    plan_ = {};
    arrivals_ = {};
    placed_ = arrived_ = 0;
    watching_ = ended_ = false;
    return leftovers;
  }

 private:
  bool waits(std::uint64_t clock) const { return clock > reached_; }

  template <typename Look, typename Info>
  void place(const HandOverPlan::Item& item, Look look, Info info) {
    const Block block = look(item.slot);
    const bool evictable = block.evictable && !waits(block.released);
    // Another content by now, or there already.
    if (block.key != item.entry.key || policy_->key_of(item.slot) != kNoKey) return;
    if (item.known) {
      if (block.evictable || block.held) policy_->place(item.slot, item.entry, evictable);
    } else if (evictable) {
      policy_->disown(block.key);  // evicted from the shadow, resident here: not a return
      policy_->insert(item.slot, block.key, info(item.slot));
    }
  }
  template <typename Look>
  void enter(const Arrival& arrival, Look look) {
    reached_ = arrival.clock;
    const Block block = look(arrival.slot);
    if (!block.evictable || block.released != arrival.clock) return;  // and not again since
    const Key known = policy_->key_of(arrival.slot);
    if (known == block.key) {
      policy_->reinsert(arrival.slot);
      return;
    }
    if (known != kNoKey) policy_->forget(arrival.slot);
    policy_->insert(arrival.slot, block.key, arrival.info);
  }

  template <typename Call>
  void guarded(Call call) {
    if (policy_ == nullptr) return;
    try {
      call();
    } catch (const std::exception& error) {
      failure_ = error.what();
      if (failure_.empty()) failure_ = "the new policy failed";
      policy_.reset();
    }
  }

  bool watching_ = false;
  std::unique_ptr<Policy> policy_;
  std::vector<HandOverPlan::Item> plan_;
  std::vector<Arrival> arrivals_;
  std::size_t placed_ = 0;
  std::size_t arrived_ = 0;
  bool ended_ = false;         // all that the policy kept for the hand-over is gone
  std::uint64_t reached_ = 0;  // releases up to this clock are in the plan, or have entered
  std::string failure_;
};

}  // namespace eviction
