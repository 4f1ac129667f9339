// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
//
// A segment: blocks that one request released together, one below the other on its path,
// and alike in what is known of them. They return together or not at all, so what is
// learnt and decided is learnt and decided of segments. It has three parts:
//
//   chain   evictable blocks, the deepest first
//   taken   held since, by a pin or by a request whose admission is not told yet
//   gone    evicted, remembered by some of their keys (ghost_keys.h)
//
// Records are taken from a table of fixed size. A pool of requests of one block each can
// have more segments than the table; what does not fit goes to the *spill*, record 0,
// whose blocks are evicted ahead of all others in order of release.
#pragma once

#include <vector>

#include "../../slot_list.h"
#include "attributes.h"
#include "block_tree.h"
#include "hazard_model.h"

namespace eviction::gittins {

struct Segment {
  explicit Segment(SlotLinks& links) : chain(links) {}

  SlotList chain;
  Covariates x;
  double birth = 0.0;  // seconds; when it was released
  float weight = 0.0f;
  float index = 0.0f;
  std::uint32_t ticket = 0;  // counts segments; orders those of equal index
  std::uint32_t taken = 0;
  std::uint32_t gone = 0;
  std::uint32_t num_keys = 0;    // that remember the part which is gone
  std::uint32_t tail = 0;        // place on the path of the chain's first block
  std::uint32_t end = 0;         // the same when it was released
  std::uint32_t first_gone = 0;  // place of the first block that is gone
  std::uint32_t spacing = 1;     // between blocks whose keys are remembered
  std::uint32_t prompt = 0;      // blocks, of the request that released it; 0 if unknown
  Attributes learnt;             // of its last block
  std::uint16_t origin = 0;      // template of the request
  std::int8_t bucket = 0;        // of its age
  bool adopted = false;          // its blocks are still to come, by a hand-over

  std::uint32_t total() const { return chain.size() + taken + gone; }
  bool empty() const { return total() == 0 && num_keys == 0 && !adopted; }
};

class SegmentTable {
 public:
  static constexpr std::uint32_t kSpill = 0;

  SegmentTable(std::uint32_t capacity, SlotLinks& links) : records_(capacity + 1, Segment(links)), links_(&links) {
    free_.reserve(capacity);
    clear();
  }

  // With the spill.
  std::uint32_t capacity() const { return static_cast<std::uint32_t>(records_.size()); }
  std::size_t size() const { return records_.size() - 1 - free_.size(); }
  std::size_t bytes() const { return records_.size() * sizeof(Segment) + free_.capacity() * sizeof(std::uint32_t); }
  bool full() const { return free_.empty(); }
  Segment& operator[](std::uint32_t id) { return records_[id]; }
  const Segment& operator[](std::uint32_t id) const { return records_[id]; }

  std::uint32_t add() {
    const std::uint32_t id = free_.back();
    free_.pop_back();
    return id;
  }
  void remove(std::uint32_t id) {
    records_[id] = Segment(*links_);
    free_.push_back(id);
  }
  void clear() {
    records_.assign(records_.size(), Segment(*links_));
    free_.clear();
    for (std::uint32_t id = capacity() - 1; id > kSpill; --id) free_.push_back(id);
  }

 private:
  std::vector<Segment> records_;
  SlotLinks* links_;
  std::vector<std::uint32_t> free_;
};

}  // namespace eviction::gittins
