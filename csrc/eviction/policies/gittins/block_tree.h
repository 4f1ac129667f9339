// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
//
// Which block is whose child on the prefix paths, for the blocks of the pool, and what
// is known of each. A block counts its resident children; while it has one no request
// could do without it, and it is no candidate for eviction.
//
// Slots are given new content behind the back of those that point to them. So a slot
// counts its fillings, and a link to a filling that is gone is no link.
//
// A request can hit a block that another one has just computed and not released yet:
// the policy does not know the slot, but it is told of it. Such a state is *early*, and
// holds when the block is inserted with the same content.
#pragma once

#include <vector>

#include "../../types.h"
#include "attributes.h"

namespace eviction::gittins {

inline constexpr std::uint32_t kNone = 0xffffffffu;

class BlockTree {
 public:
  struct Block {
    std::uint32_t segment = kNone;  // that it was released in, until a request uses it again
    Slot parent = kNoSlot;
    std::uint32_t parent_filling = 0;
    std::uint32_t filling = 0;
    std::uint32_t children = 0;
    std::uint32_t tag = 0;  // of the content of an early block
    Attributes learnt;
    bool evictable = false;
    bool early = false;
  };

  explicit BlockTree(std::uint32_t num_slots) : blocks_(num_slots) {}

  std::size_t bytes() const { return blocks_.size() * sizeof(Block); }
  Block& operator[](Slot slot) { return blocks_[slot]; }
  const Block& operator[](Slot slot) const { return blocks_[slot]; }
  void prefetch(Slot slot) const { __builtin_prefetch(&blocks_[slot]); }

  // kNoSlot when it has none, or that is gone.
  Slot parent(Slot slot) const {
    const Block& block = blocks_[slot];
    return block.parent != kNoSlot && blocks_[block.parent].filling == block.parent_filling ? block.parent : kNoSlot;
  }
  // Returns the parent that it had before, to be looked at again: it may be a leaf now.
  Slot link(Slot slot, Slot parent_slot) {
    if (parent(slot) == parent_slot) return kNoSlot;
    const Slot before = unlink(slot);
    if (parent_slot == kNoSlot) return before;
    blocks_[slot].parent = parent_slot;
    blocks_[slot].parent_filling = blocks_[parent_slot].filling;
    ++blocks_[parent_slot].children;
    return before;
  }
  Slot unlink(Slot slot) {
    const Slot before = parent(slot);
    if (before != kNoSlot) --blocks_[before].children;
    blocks_[slot].parent = kNoSlot;
    return before;
  }
  // The content is gone. Returns the parent, as `link`.
  Slot empty(Slot slot) {
    const Slot before = unlink(slot);
    const std::uint32_t filling = blocks_[slot].filling + 1;
    blocks_[slot] = Block{};
    blocks_[slot].filling = filling;
    return before;
  }
  // Whether the state is of this content though the slot is not known yet.
  bool early(Slot slot, Key key) const { return blocks_[slot].early && blocks_[slot].tag == tag_of(key); }
  void set_early(Slot slot, Key key) {
    blocks_[slot].early = true;
    blocks_[slot].tag = tag_of(key);
  }

  void clear() { blocks_.assign(blocks_.size(), Block{}); }
  void check() const {
    std::vector<std::uint32_t> children(blocks_.size(), 0);
    for (Slot slot = 0; slot < blocks_.size(); ++slot) {
      if (parent(slot) != kNoSlot) ++children[parent(slot)];
    }
    for (Slot slot = 0; slot < blocks_.size(); ++slot) {
      require(children[slot] == blocks_[slot].children, "gittins: a block has other children than it counts");
    }
  }

 private:
  static std::uint32_t tag_of(Key key) { return static_cast<std::uint32_t>((key * 0x9e3779b97f4a7c15ull) >> 32); }

  std::vector<Block> blocks_;
};

}  // namespace eviction::gittins
