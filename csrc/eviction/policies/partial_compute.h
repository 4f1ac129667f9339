// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
//
// RandomCompute on partial nodes, "When fancy eviction fails", 2026: the blocks that one
// request computed are a node, a run of a path. Of a few nodes that are drawn the one of
// least recompute cost (the mean of its blocks) for the time since its last use gives
// up a chunk of contiguous blocks from its *beginning*, which is its cheaper part. So
// holes are few and long, and filling one is one step of prefill.
//
// Offline until holes can be filled: in an engine that recomputes from the first
// missing block, a node without its beginning is worth nothing.
//
// Where this differs from the paper, and why:
// - A chunk is counted in blocks; the paper's is a token budget, this many blocks long.
// - A node is not split where two prompts part: its time is that of its last block to
//   come back.
// - Time is in accesses, and one access is added, so that what was used last has a
//   score. What is released other than at the end of a request is a node of its own.
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
    std::uint32_t chunk = 32;  // blocks
    std::uint32_t seed = 0;
  };

  PartialCompute(std::uint32_t num_slots, const Config& config)
      : Policy(num_slots), config_(config), groups_(links_), nodes_(num_slots), cost_(num_slots, 0), node_(num_slots) {}

  Traits traits() const override {
    return {.needs_structure = true, .needs_cost = true, .offline = true, .moves_on_hit = true};
  }
  std::uint32_t size() const override { return groups_.size(); }
  std::size_t bytes() const override {
    return base_bytes() + groups_.bytes() + nodes_.bytes() + cost_.size() * (sizeof(cost_[0]) + sizeof(Node));
  }

  void insert(Slot slot, Key key, const BlockInfo& info) override {
    learn(slot, key);
    cost_[slot] = cost_units(info.cost);
    if (releasing_ != kNone && !groups_.has_members(releasing_)) releasing_ = kNone;
    Group node = finishing_ ? releasing_ : kNone;
    if (node == kNone) node = groups_.open();
    if (finishing_) releasing_ = node;
    groups_.join(slot, node);
    enqueue(slot);
    node_[node].used = static_cast<std::uint32_t>(clock_);
  }
  void reinsert(Slot slot) override {
    enqueue(slot);
    node_[groups_.group_of(slot)].used = static_cast<std::uint32_t>(clock_);
  }
  void take(Slot slot) override { dequeue(slot); }
  void forget(Slot slot) override {
    if (groups_.queued(slot)) dequeue(slot);
    groups_.leave(slot);
    unlearn(slot);
  }

  std::vector<Slot> peek(std::size_t n) const override;

  void clear() override {
    groups_.clear();
    nodes_.clear();
    unlearn_all();
    chunk_node_ = releasing_ = kNone;
    chunk_left_ = 0;
    finishing_ = false;
    clock_ = 0;
    ghost_hits_ = 0;
  }

  void check() const override {
    groups_.check([this](Slot slot) { return knows(slot); });
    nodes_.check();
    std::uint32_t nodes = 0;
    for (Group node = 0; node < num_slots(); ++node) {
      const SlotList& list = groups_[node];
      require(nodes_.contains(node) == !list.empty(), "partial-compute: a node is not among those to draw from");
      nodes += !list.empty();
      std::uint64_t cost = 0;
      for (Slot slot = list.front(); slot != kNoSlot; slot = list.next(slot)) cost += cost_[slot];
      require(list.empty() || cost == node_[node].cost, "partial-compute: wrong cost of a node");
    }
    require(nodes == nodes_.size(), "partial-compute: wrong number of nodes");
  }

  void admit(const Admission& request) override {
    end_finish();
    clock_ += request.keys.size();
  }
  // Its blocks come next.
  void finish(Serial, std::span<const Key>, double) override {
    end_finish();
    finishing_ = true;
  }

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
      out.entries.push_back({keys_[slot], groups_.name(node), cost_[slot]});
      if (!told[node]) used.emplace_back(groups_.name(node), node_[node].used);
      told[node] = true;
    };
    for (const Group node : nodes_.slots()) {
      const SlotList& list = groups_[node];
      for (Slot slot = list.front(); slot != kNoSlot; slot = list.next(slot)) tell(slot);
    }
    for (Slot slot = 0; slot < num_slots(); ++slot) {  // held, but known
      if (knows(slot) && !groups_.queued(slot)) tell(slot);
    }
    std::sort(used.begin(), used.end());
    for (const auto& [name, when] : used) out.scalars.insert(out.scalars.end(), {static_cast<double>(name), when});
    return out;
  }
  // Where the nodes stand among the samples, the copy does not know.
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
    cost_[slot] = known.value;
    const Group node = groups_.named(known.queue);
    groups_.join(slot, node);
    node_[node].used = adopted_use_[known.queue];
    if (!evictable) return;
    enqueue(slot);
    if (known.queue != adopted_chunk_node_) return;
    chunk_node_ = node;
    chunk_left_ = adopted_chunk_;
  }

 protected:
  Slot choose() override {
    if (size() == 0) return kNoSlot;
    end_finish();
    if (chunk_node_ == kNone) {
      chunk_node_ = nodes_.lowest(config_.samples, config_.seed,
                                  [this](Group node) { return score(node, node_[node].cost, groups_[node].size()); });
      chunk_left_ = config_.chunk;
    }
    const Slot slot = groups_[chunk_node_].back();
    --chunk_left_;
    dequeue(slot);
    groups_.leave(slot);
    if (chunk_left_ == 0) chunk_node_ = kNone;
    return slot;
  }

 private:
  using Group = SlotGroups::Group;
  static constexpr Group kNone = SlotGroups::kNone;
  static_assert(kNone == kNoSlot, "an empty sample is no node");
  struct Node {
    std::uint64_t cost = 0;  // of its evictable blocks, units
    std::uint32_t used = 0;  // the clock, modulo 2^32
  };

  double score(Group node, std::uint64_t cost, std::uint32_t blocks) const {
    const std::uint32_t age = static_cast<std::uint32_t>(clock_) - node_[node].used;
    return static_cast<double>(cost) / blocks / (1.0 + age);
  }
  void end_finish() {
    finishing_ = false;
    releasing_ = kNone;
    groups_.end_adoption();
    adopted_use_ = {};
  }
  void enqueue(Slot slot) {
    const Group node = groups_.group_of(slot);
    if (groups_[node].empty()) {
      nodes_.add(node);
      node_[node].cost = 0;
    }
    groups_.enqueue(slot);
    node_[node].cost += cost_[slot];
  }
  void dequeue(Slot slot) {
    const Group node = groups_.group_of(slot);
    groups_.dequeue(slot);
    node_[node].cost -= cost_[slot];
    if (!groups_[node].empty()) return;
    nodes_.remove(node);
    if (chunk_node_ == node) chunk_node_ = kNone;
  }

  Config config_;
  SlotGroups groups_;
  SampledSet nodes_;                 // with evictable blocks
  std::vector<std::uint32_t> cost_;  // of a slot's block, units
  std::vector<Node> node_;
  Group chunk_node_ = kNone;      // that gives
  std::uint32_t chunk_left_ = 0;  // blocks
  bool finishing_ = false;        // what is released now belongs to a request that ended
  Group releasing_ = kNone;       // its node, kNone before it has a block
  std::uint64_t clock_ = 0;       // accesses
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
    return found != rests.end() ? found->second : Rest{groups_[node].back(), node_[node].cost, groups_[node].size()};
  };
  Group giving = chunk_node_;
  std::uint32_t left = chunk_left_;
  while (out.size() < n && nodes.size() > 0) {
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
    if (rest.blocks == 0) nodes.remove(giving);
    if (--left == 0 || rest.blocks == 0) giving = kNone;
  }
  return out;
}

}  // namespace eviction
