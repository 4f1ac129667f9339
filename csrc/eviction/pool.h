// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
//
// vLLM's block pool without data: which blocks are held, which content each has,
// and in what order the free ones go. Fed by what the engine does it is a shadow
// of it under another policy; fed by a trace it is the simulator's engine. The
// free blocks are ordered by the same FreeQueue as the live ones.
//
// A request is given the longest cached prefix and blocks for the rest; prompt
// blocks can be found by others from its admission on, output blocks once they are
// reported; everything is released at its end, tail first. As in vLLM, two blocks
// may hold the same content: the older one is found.
//
// A pool may fill holes: then a request is also given the cached runs behind the first
// miss that are worth it (holes.h), and computes what lies between. The engine does that
// piece by piece; here all blocks are there, and full, from the admission on.
//
// A model with several KV-cache groups has a pool that all groups share. A hit
// needs the prefix in every group; a group with a sliding window needs, and
// holds, only the blocks of the window. (vLLM frees a window's blocks as they fall
// out of it, without a hash unless they end a prompt; the model holds the last
// window of the prompt and then moves with the output.)
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "free_queue.h"
#include "holes.h"
#include "key_index.h"

namespace eviction {

// Blocks of its window for each KV-cache group; 0 keeps every block.
using Windows = std::vector<std::uint32_t>;

// How a pool's blocks lie in a prompt.
struct Layout {
  Windows windows = {0};
  std::uint32_t block_size = 1;  // tokens
  RecomputeCost cost = {};
  std::optional<HoleRule> holes = {};  // not looked at with several groups or with a window
};

class Pool final : private Residency {
 public:
  // `keeps_releases`: for one whose policy is changed; see FreeQueue.
  Pool(std::unique_ptr<Policy> policy, Layout layout = {}, bool keeps_releases = false)
      : windows_(std::move(layout.windows)),
        block_size_(layout.block_size),
        cost_(layout.cost),
        holes_(layout.holes),
        index_(policy->num_slots()),
        held_by_(policy->num_slots(), 0),
        queue_(std::move(policy), FreeQueue::Order::kModel, keeps_releases) {
    for (Slot slot = 0; slot < queue_.num_slots(); ++slot) {
      policy_of().set_content(slot, kNoKey);
      queue_.push_blank_back(slot);
    }
  }

  std::uint32_t num_blocks() const { return queue_.num_slots(); }
  std::uint32_t num_free() const { return queue_.size(); }
  std::size_t num_groups() const { return windows_.size(); }
  std::size_t bytes() const { return queue_.bytes() + index_.bytes() + held_by_.size() * sizeof(held_by_[0]); }
  FreeQueue& queue() { return queue_; }
  const FreeQueue& queue() const { return queue_; }

  // All keys from now on are numbers up to `last`; see KeyIndex. Before the first request.
  void number_keys(Key last) {
    index_.number_keys(last);
    policy_of().number_keys(last);
  }

  // By which rule from now on; without one no more.
  void fill_holes(std::optional<HoleRule> holes) { holes_ = holes; }

  // Blocks of the longest cached prefix that every group can serve, at most `limit`,
  // and of the runs behind it where holes are filled. At least one block of the prompt
  // comes behind `limit`, perhaps one that is not full.
  // `keys`: the prompt's, one group after the other, the same number for each.
  std::uint32_t lookup(std::span<const Key> keys, std::uint32_t limit) { return locate(keys, limit).hits; }

  // Admits a request that will hold `num_blocks` blocks of each group (its window
  // where it has one). Returns the number of blocks hit, as `lookup` says; false
  // in `fits` when the free blocks do not suffice, and then nothing has changed.
  struct Admitted {
    std::uint32_t hits;
    bool fits;
    std::uint32_t holes;        // missed runs before the last hit
    std::uint32_t hole_blocks;  // in them
    double saved;               // cost of the hits
  };
  Admitted admit(Serial serial, std::span<const Key> keys, std::uint32_t limit, std::uint32_t num_blocks, double now);

  // The request holds more blocks by now, and those of `keys` are full: of all its
  // blocks from the start, as for `lookup`; none when it is not known. Takes what
  // there is when too few are free.
  void grow(Serial serial, std::uint32_t num_blocks, std::span<const Key> keys = {});

  // The request ends. `keys`: of all blocks that it filled. Those that no `grow` has
  // told of are taken and get their content now.
  void finish(Serial serial, std::span<const Key> keys, double now);

  // The prefix cache was reset: no content is left, requests keep their blocks.
  void reset();

  void check() const;

 private:
  // What a request holds of one group.
  struct Running {
    std::uint32_t first;      // blocks at the prompt's start that a window left out
    std::uint32_t filled;     // blocks with content, counted from the prompt's start
    std::vector<Slot> slots;  // slots[i] is block first + i
  };

  Policy& policy_of() { return queue_.policy(); }
  const Policy& policy_of() const { return queue_.policy(); }
  Slot find(Key key) const {
    return index_.find(key, [this](std::uint32_t slot) { return policy_of().content(slot); });
  }

  // Of a prompt, in blocks.
  struct Located {
    std::uint32_t prefix;  // hits before the first miss
    std::uint32_t hits;
    std::uint32_t end;  // behind the last hit
  };
  Located locate(std::span<const Key> keys, std::uint32_t limit);
  Located locate_runs(std::span<const Key> keys, std::uint32_t prefix, std::uint32_t limit);
  bool fills_holes() const { return holes_.has_value() && windows_.size() == 1 && windows_[0] == 0; }
  Admitted describe(const Located& located) const;

  // Residency.
  Key key(Slot slot) override { return policy_of().content(slot); }
  bool duplicated(Slot slot) override { return copies(slot) > 1; }
  std::uint32_t copies(Slot slot) override {
    const Key key = policy_of().content(slot);
    if (!may_have_copies(key)) return 1;
    const auto copies = copies_.find(key);
    return copies == copies_.end() ? 1 : 1 + static_cast<std::uint32_t>(copies->second.size());
  }

  // Copies are rare, and they are asked for at every release and eviction: a small
  // table that stays in the processor's cache says for most keys that there is none.
  static std::size_t filter_of(Key key) { return (key * 0x9e3779b97f4a7c15ull) >> 54; }
  bool may_have_copies(Key key) const { return copied_[filter_of(key)] > 0; }
  void add_copy(Key key, Slot slot);

  // Appends n blocks. As in vLLM, all are chosen before the first loses its content.
  void allocate(std::size_t n, std::vector<Slot>& out);
  void fill(Slot slot, Key key);
  void fill(Running& run, std::span<const Key> keys);
  void close_holes(Running& run, std::span<const Key> keys, const Located& located);
  void empty(Slot slot);
  void hold(Slot slot);
  BlockInfo info_of(Serial serial, const Running& run, std::size_t i) const;
  void release(Slot slot, const BlockInfo& info);
  void release_all(Serial serial, const Running& run);

  Windows windows_;
  std::uint32_t block_size_;
  RecomputeCost cost_;
  std::optional<HoleRule> holes_;
  KeyIndex index_;                                                           // content to its oldest block
  std::unordered_map<Key, std::vector<Slot>> copies_;                        // the other blocks of a content
  std::vector<std::uint32_t> copied_ = std::vector<std::uint32_t>(1024, 0);  // keys with copies, by `filter_of`
  std::vector<std::uint16_t> held_by_;                                       // requests that hold a block
  FreeQueue queue_;
  std::unordered_map<Serial, std::vector<Running>> running_;  // one for each group
  std::vector<Slot> found_;                                   // scratch: a slot for each key of a prompt
};

}  // namespace eviction
