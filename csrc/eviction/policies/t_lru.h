// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
//
// Tail-Optimized LRU: arXiv 2510.15152, 2025. A conversation whose history is H tokens
// long comes back with a prompt of about Q more. If xi tokens may be recomputed within
// the target for the time to the first token, only the first B = max(0, H + Q - xi)
// tokens matter to it: blocks beyond B go first, the others by LRU. So short
// conversations, which meet the target anyway, give way to long ones, which would not.
//
// Where this differs from the paper, and why:
// - Q is a parameter, the same for all conversations.
// - H is the depth of the deepest block that is released when a request ends. Blocks
//   that are released otherwise (a preemption, a pin) stay in the half in which they
//   were.
// - Conversations share blocks. What one of them needs stays needed as long as it is
//   resident, also when a shorter one used it last. So a conversation that grows takes
//   its blocks over, one by one, and only the end of a request ever goes first.
//
// No ghosts. A parent can go before its child in one case: a short conversation still
// holds it when the long one ends that needs both.
#pragma once

#include <algorithm>

#include "../policy.h"
#include "../queue_set.h"

namespace eviction {

class TLru final : public Policy {
 public:
  struct Config {
    double xi = 2048;          // tokens that may be recomputed
    double next_prompt = 256;  // Q, tokens
  };

  TLru(std::uint32_t num_slots, const Config& config)
      : Policy(num_slots), config_(config), queues_(links_), depth_(num_slots, 0) {}

  Traits traits() const override { return {.needs_structure = true, .moves_on_hit = true}; }
  std::uint32_t size() const override { return queues_.size(); }
  std::size_t bytes() const override { return base_bytes() + queues_.bytes() + depth_.size() * sizeof(depth_[0]); }

  void insert(Slot slot, Key key, const BlockInfo& info) override {
    learn(slot, key);
    depth_[slot] = info.depth;
    queues_.assign(slot, finishing_ ? kSpare : kNeeded);
    reinsert(slot);
  }
  void reinsert(Slot slot) override {
    if (finishing_) {
      history_ = std::max(history_, depth_[slot]);
      if (depth_[slot] <= needed()) queues_.assign(slot, kNeeded);
    }
    queues_.enqueue(slot);
  }
  void take(Slot slot) override { queues_.dequeue(slot); }
  void forget(Slot slot) override {
    queues_.drop(slot);
    unlearn(slot);
  }

  std::vector<Slot> peek(std::size_t n) const override { return queues_.peek(n); }

  void clear() override {
    queues_.clear();
    unlearn_all();
    finishing_ = false;
    ghost_hits_ = 0;
  }

  void check() const override {
    queues_.check([this](Slot slot) { return knows(slot); });
  }

  void admit(const Admission&) override { finishing_ = false; }
  // The request's blocks come next, the deepest first.
  void finish(Serial, std::span<const Key>, double) override {
    finishing_ = true;
    history_ = 0;
  }

  Snapshot snapshot() const override {
    Snapshot out;
    queues_.each([this](Slot slot) { return knows(slot); },
                 [&](Slot slot) { out.entries.push_back({keys_[slot], queues_.queue_of(slot), depth_[slot]}); });
    out.scalars = {finishing_ ? static_cast<double>(history_) : -1.0};
    return out;
  }
  void adopt_history(const Snapshot& snapshot) override {
    finishing_ = snapshot.scalars.at(0) >= 0;
    if (finishing_) history_ = static_cast<std::uint32_t>(snapshot.scalars.at(0));
  }
  void place(Slot slot, const Snapshot::Entry& known, bool evictable) override {
    learn(slot, known.key);
    queues_.assign(slot, static_cast<std::uint8_t>(known.queue));
    depth_[slot] = known.value;
    if (evictable) queues_.enqueue(slot);
  }

 protected:
  Slot choose() override {
    const Slot slot = queues_[queues_[kSpare].empty() ? kNeeded : kSpare].front();
    if (slot == kNoSlot) return kNoSlot;
    finishing_ = false;
    queues_.drop(slot);
    return slot;
  }

 private:
  static constexpr std::uint8_t kSpare = 0;  // beyond B
  static constexpr std::uint8_t kNeeded = 1;

  double needed() const { return std::max(0.0, history_ + config_.next_prompt - config_.xi); }

  Config config_;
  QueueSet<2> queues_;
  std::vector<std::uint32_t> depth_;  // tokens
  bool finishing_ = false;            // what is released now belongs to a request that ended
  std::uint32_t history_ = 0;         // of that request, tokens
};

}  // namespace eviction
