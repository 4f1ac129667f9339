// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
//
// RandomCompute on partial nodes, "When fancy eviction fails", 2026: the blocks that one
// request computed are a node, a run of a path. Of a few nodes that are drawn the one of
// least recompute cost (the mean of its blocks) for the time since its last use gives
// up a chunk of contiguous blocks from its *beginning*, which is its cheaper part. So
// holes are few and long, and filling one is one step of prefill.
//
// For an engine that can fill holes. In one that recomputes from the first missing block
// a node without its beginning is worth nothing, and the policy wastes what it keeps.
//
// With `small_ratio` blocks that were never hit stand in a small queue before the nodes,
// as in S3-FIFO: the paper combines the two so (its section 5.4), and lets costs count
// among the blocks that were hit only. The small queue is first in, first out, a
// request's tail first; what leaves it is not remembered.
//
// A node is told by how its blocks come back: one after the other, tail first, each less
// deep than the one before. That holds at the end of a request, when it is preempted, and
// when its release was put off. The engine tells of the ends so that two requests
// that end together make two nodes.
//
// Where this differs from the paper, and why:
// - A chunk is counted in blocks; the paper's is a token budget, this many blocks long.
// - A node is not split where two prompts part: its time is that of its last block to
//   be used. What fills a hole is a node of its own, which has the time of the request
//   as all that the request used.
// - Time is in accesses, and one access is added, so that what was used last has a
//   score.
// - A set of nodes no larger than a sample is looked at as a whole. Between equals the
//   one that became evictable first gives.
//
// No ghosts.
#pragma once

#include <algorithm>
#include <unordered_map>

#include "../cost_units.h"
#include "../policy.h"
#include "../sampled_set.h"
#include "../slot_groups.h"

namespace eviction {

class PartialCompute final : public Policy {
 public:
  struct Config {
    std::uint32_t samples = 16;
    std::uint32_t chunk = 32;  // blocks; best is what a step of prefill computes
    double small_ratio = 0.0;  // of the evictable blocks, [0, 1)
    std::uint32_t seed = 0;
  };

  PartialCompute(std::uint32_t num_slots, const Config& config)
      : Policy(num_slots),
        config_(config),
        groups_(links_),
        small_(links_),
        state_(num_slots, 0),
        cost_(num_slots, 0),
        nodes_(num_slots),
        node_cost_(num_slots, 0),
        used_(num_slots, 0) {}

  Traits traits() const override {
    return {.needs_structure = true, .needs_cost = true, .moves_on_hit = true, .fills_holes = true};
  }
  std::uint32_t size() const override { return small_.size() + groups_.size(); }
  std::size_t bytes() const override {
    return base_bytes() + groups_.bytes() + nodes_.bytes() +
           cost_.size() * (sizeof(state_[0]) + sizeof(cost_[0]) + sizeof(node_cost_[0]) + sizeof(used_[0]));
  }

  void insert(Slot slot, Key key, const BlockInfo& info) override {
    learn(slot, key);
    cost_[slot] = cost_units(info.cost);
    const bool follows = releasing_ != kNone && groups_.has_members(releasing_) && info.depth < released_depth_;
    if (!follows) releasing_ = groups_.open();
    released_depth_ = info.depth;
    groups_.join(slot, releasing_);
    used_[releasing_] = static_cast<std::uint32_t>(clock_);
    // Another request may have hit it before it was released for the first time.
    state_[slot] = config_.small_ratio > 0 && (state_[slot] & kHit) == 0 ? kNew : std::uint8_t{0};
    enqueue(slot);
  }
  void reinsert(Slot slot) override {
    releasing_ = kNone;
    if ((state_[slot] & kHit) != 0) {
      state_[slot] = 0;
      used_[groups_.group_of(slot)] = static_cast<std::uint32_t>(clock_);
    }
    enqueue(slot);
  }
  void take(Slot slot) override { dequeue(slot); }
  void forget(Slot slot) override {
    if (queued(slot)) dequeue(slot);
    groups_.leave(slot);
    state_[slot] = 0;
    unlearn(slot);
  }

  std::vector<Slot> peek(std::size_t n) const override;

  void clear() override {
    groups_.clear();
    small_.clear();
    nodes_.clear();
    state_.assign(state_.size(), 0);
    unlearn_all();
    chunk_node_ = releasing_ = kNone;
    chunk_left_ = 0;
    clock_ = 0;
    ghost_hits_ = 0;
    end_adoption();
  }

  void check() const override {
    groups_.check([this](Slot slot) { return knows(slot); });
    small_.check([this](Slot slot) {
      require((state_[slot] & kSmall) != 0 && !groups_.queued(slot), "partial-compute: not in the small queue");
      require(knows(slot), "partial-compute: an evictable block has no key");
    });
    nodes_.check();
    const auto small = std::count_if(state_.begin(), state_.end(), [](std::uint8_t state) { return state & kSmall; });
    std::uint32_t nodes = 0;
    for (Group node = 0; node < num_slots(); ++node) {
      const SlotList list = groups_[node];
      require(nodes_.contains(node) == !list.empty(), "partial-compute: a node is not among those to draw from");
      nodes += !list.empty();
      std::uint64_t cost = 0;
      for (Slot slot = list.front(); slot != kNoSlot; slot = list.next(slot)) cost += cost_[slot];
      require(list.empty() || cost == node_cost_[node], "partial-compute: wrong cost of a node");
    }
    require(nodes == nodes_.size() && static_cast<std::uint32_t>(small) == small_.size(),
            "partial-compute: wrong sizes");
  }

  void admit(const Admission& request) override {
    releasing_ = kNone;
    clock_ += request.keys.size();
    for (const Slot slot : request.slots) {
      if (slot != kNoSlot) state_[slot] |= kHit;
    }
  }
  // Its blocks come next.
  void finish(Serial, std::span<const Key>, double) override { releasing_ = kNone; }

  // Node by node, so that the scalars can say of each when it was used.
  Snapshot snapshot() const override {
    Snapshot out;
    const bool going = chunk_node_ != kNone;
    out.scalars = {static_cast<double>(clock_), static_cast<double>(nodes_.draws()),
                   going ? static_cast<double>(chunk_left_) : 0.0, going ? groups_.name(chunk_node_) : -1.0,
                   static_cast<double>(groups_.next_name())};
    std::vector<std::pair<SlotGroups::Name, double>> used;
    std::vector<bool> told(num_slots(), false);
    const auto tell = [&](Slot slot) {
      const Group node = groups_.group_of(slot);
      out.entries.push_back({keys_[slot], groups_.name(node), cost_[slot] << kStateBits | (state_[slot] & kKept)});
      if (!told[node]) used.emplace_back(groups_.name(node), used_[node]);
      told[node] = true;
    };
    const auto tell_all = [&](const SlotList& list) {
      for (Slot slot = list.front(); slot != kNoSlot; slot = list.next(slot)) tell(slot);
    };
    for (const Group node : nodes_.slots()) tell_all(groups_[node]);
    tell_all(small_);
    for (Slot slot = 0; slot < num_slots(); ++slot) {  // held, but known
      if (knows(slot) && !queued(slot)) tell(slot);
    }
    std::sort(used.begin(), used.end());
    for (const auto& [name, when] : used) out.scalars.insert(out.scalars.end(), {static_cast<double>(name), when});
    return out;
  }
  // Where the nodes stand among the samples, the copy does not know. Requests come and go
  // during a hand-over; it is over when there is a victim to choose.
  void adopt_history(const Snapshot& snapshot) override {
    const std::vector<double>& in = snapshot.scalars;
    clock_ = static_cast<std::uint64_t>(in.at(0));
    nodes_.set_draws(static_cast<std::uint64_t>(in.at(1)));
    adopted_chunk_ = static_cast<std::uint32_t>(in.at(2));
    adopted_chunk_node_ = in.at(3);
    groups_.set_next_name(static_cast<std::uint32_t>(in.at(4)));
    for (std::size_t i = 5; i + 1 < in.size(); i += 2) {
      adopted_use_[static_cast<SlotGroups::Name>(in[i])] = static_cast<std::uint32_t>(in[i + 1]);
    }
  }
  void place(Slot slot, const Snapshot::Entry& known, bool evictable) override {
    learn(slot, known.key);
    releasing_ = kNone;
    cost_[slot] = known.value >> kStateBits;
    state_[slot] = static_cast<std::uint8_t>(known.value & kKept);
    const Group node = groups_.named(known.queue);
    if (!groups_.has_members(node)) used_[node] = adopted_use_[known.queue];
    groups_.join(slot, node);
    if (!evictable) return;
    enqueue(slot);
    if (known.queue != adopted_chunk_node_ || !groups_.queued(slot)) return;
    chunk_node_ = node;
    chunk_left_ = adopted_chunk_;
  }

 protected:
  Slot choose() override {
    if (size() == 0) return kNoSlot;
    releasing_ = kNone;
    end_adoption();
    const Slot slot = evicts_small(small_.size(), groups_.size()) ? small_.front() : next_of_chunk();
    dequeue(slot);
    if (chunk_left_ == 0) chunk_node_ = kNone;
    groups_.leave(slot);
    state_[slot] = 0;
    return slot;
  }

 private:
  using Group = SlotGroups::Group;
  static constexpr Group kNone = SlotGroups::kNone;
  static_assert(kNone == kNoSlot, "an empty sample is no node");
  // Of a slot.
  static constexpr std::uint8_t kHit = 1;    // used since it was queued
  static constexpr std::uint8_t kNew = 2;    // belongs to the small queue
  static constexpr std::uint8_t kSmall = 4;  // stands there
  static constexpr std::uint8_t kKept = kHit | kNew;
  static constexpr int kStateBits = 2;
  static_assert(kCostBits + kStateBits <= 32);

  bool evicts_small(std::uint32_t small, std::uint32_t main) const {
    return small > 0 && (main == 0 || small >= config_.small_ratio * (static_cast<double>(small) + main));
  }
  Slot next_of_chunk() {
    if (chunk_node_ == kNone) {
      chunk_node_ = nodes_.lowest(config_.samples, config_.seed,
                                  [this](Group node) { return score(node, node_cost_[node], groups_[node].size()); });
      chunk_left_ = config_.chunk;
    }
    --chunk_left_;
    return groups_[chunk_node_].back();
  }
  double score(Group node, std::uint64_t cost, std::uint32_t blocks) const {
    const std::uint32_t age = static_cast<std::uint32_t>(clock_) - used_[node];
    return static_cast<double>(cost) / blocks / (1.0 + age);
  }
  void end_adoption() {
    if (adopted_use_.empty()) return;
    groups_.end_adoption();
    adopted_use_ = {};
  }
  bool queued(Slot slot) const { return (state_[slot] & kSmall) != 0 || groups_.queued(slot); }
  void enqueue(Slot slot) {
    if ((state_[slot] & kNew) != 0) {
      small_.push_back(slot);
      state_[slot] |= kSmall;
      return;
    }
    const Group node = groups_.group_of(slot);
    if (groups_[node].empty()) {
      nodes_.add(node);
      node_cost_[node] = 0;
    }
    groups_.enqueue(slot);
    node_cost_[node] += cost_[slot];
  }
  void dequeue(Slot slot) {
    if ((state_[slot] & kSmall) != 0) {
      small_.erase(slot);
      state_[slot] &= static_cast<std::uint8_t>(~kSmall);
      return;
    }
    const Group node = groups_.group_of(slot);
    groups_.dequeue(slot);
    node_cost_[node] -= cost_[slot];
    if (!groups_[node].empty()) return;
    nodes_.remove(node);
    if (chunk_node_ == node) chunk_node_ = kNone;
  }

  Config config_;
  SlotGroups groups_;  // nodes; those of their blocks that are not new stand in lists
  SlotList small_;     // of new blocks
  std::vector<std::uint8_t> state_;
  std::vector<std::uint32_t> cost_;       // of a slot's block, units
  SampledSet nodes_;                      // with blocks in their lists
  std::vector<std::uint64_t> node_cost_;  // of the blocks in its list, units
  std::vector<std::uint32_t> used_;       // a node, by the clock, modulo 2^32
  Group chunk_node_ = kNone;              // that gives
  std::uint32_t chunk_left_ = 0;          // blocks
  Group releasing_ = kNone;               // the node that the next block may belong to
  std::uint32_t released_depth_ = 0;      // of the last block, tokens
  std::uint64_t clock_ = 0;               // accesses
  // Of a hand-over.
  std::unordered_map<SlotGroups::Name, std::uint32_t> adopted_use_;
  std::uint32_t adopted_chunk_ = 0;
  double adopted_chunk_node_ = -1.0;
};

// Runs the evictions on the side, with a copy of the nodes to draw from.
inline std::vector<Slot> PartialCompute::peek(std::size_t n) const {
  struct Rest {
    Slot last;
    std::uint64_t cost;
    std::uint32_t blocks;
  };
  std::vector<Slot> out;
  SampledSet nodes = nodes_;
  std::unordered_map<Group, Rest> rests;
  const auto rest_of = [&](Group node) {
    const auto found = rests.find(node);
    return found != rests.end() ? found->second : Rest{groups_[node].back(), node_cost_[node], groups_[node].size()};
  };
  Slot small = small_.front();
  std::uint32_t small_size = small_.size();
  std::uint32_t main_size = groups_.size();
  Group giving = chunk_node_;
  std::uint32_t left = chunk_left_;
  while (out.size() < n && small_size + main_size > 0) {
    if (evicts_small(small_size, main_size)) {
      out.push_back(small);
      small = small_.next(small);
      --small_size;
      continue;
    }
    if (giving == kNone) {
      giving = nodes.lowest(config_.samples, config_.seed, [&](Group node) {
        const Rest rest = rest_of(node);
        return score(node, rest.cost, rest.blocks);
      });
      left = config_.chunk;
    }
    Rest rest = rest_of(giving);
    out.push_back(rest.last);
    rest = {groups_[giving].previous(rest.last), rest.cost - cost_[rest.last], rest.blocks - 1};
    rests[giving] = rest;
    --main_size;
    if (rest.blocks == 0) nodes.remove(giving);
    if (--left == 0 || rest.blocks == 0) giving = kNone;
  }
  return out;
}

}  // namespace eviction
