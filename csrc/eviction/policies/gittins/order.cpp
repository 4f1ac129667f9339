// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
//
// The order of `gittins`: what is evictable, and who goes next.

#include "../gittins.h"

#include <algorithm>
#include <limits>
#include <queue>
#include <unordered_map>
#include <utility>

#include "adopted.h"

namespace eviction {

using gittins::Segment;

namespace {
// Small pools get what a test needs, large ones what their traffic needs.
std::uint32_t num_segments(std::uint32_t slots) { return slots / 8 * 3 + 64; }
std::uint32_t num_running(std::uint32_t slots) { return std::clamp(slots / 16, 64u, 1024u); }
std::uint32_t num_templates(std::uint32_t slots) { return std::clamp(slots / 16, 64u, 1024u); }
}  // namespace

Gittins::Gittins(std::uint32_t num_slots)
    : Policy(num_slots),
      tree_(num_slots),
      segments_(num_segments(num_slots), links_),
      heap_(segments_.capacity()),
      timers_(segments_.capacity()),
      ghosts_(num_slots),
      running_(num_running(num_slots)),
      templates_(num_templates(num_slots)) {
  segments_[kSpill].index = -1.0f;
  found_.reserve(16);
}

Gittins::~Gittins() = default;

std::size_t Gittins::bytes() const {
  return base_bytes() + hazard_.bytes() + tree_.bytes() + segments_.bytes() + heap_.bytes() + timers_.bytes() +
         ghosts_.bytes() + running_.bytes() + templates_.bytes() + path_.capacity() * sizeof(Key) +
         found_.capacity() * sizeof(Found);
}

void Gittins::insert(Slot slot, Key key, const BlockInfo&) {
  const std::uint32_t place = locate(key);
  if (!tree_.early(slot, key)) {
    reset(slot);
    if (place != kUnplaced) tree_[slot].learnt = finishing_.learnt_at(place);
  }
  tree_[slot].early = false;
  if (const Ghost ghost = ghosts_.find(key)) forget_ghost(ghost);
  learn(slot, key);
  release(slot, place);
}

void Gittins::take(Slot slot) {
  close();
  gittins::BlockTree::Block& block = tree_[slot];
  Segment& segment = segments_[block.segment];
  const bool was_next = segment.chain.front() == slot;
  segment.chain.erase(slot);
  ++segment.taken;
  block.evictable = false;
  --size_;
  if (!was_next) return;
  --segment.tail;
  refresh(block.segment);
}

void Gittins::forget(Slot slot) {
  if (!knows(slot) && !tree_[slot].early) return;
  if (tree_[slot].evictable) take(slot);
  settle(slot);
  reset(slot);
  unlearn(slot);
}

void Gittins::disown(Key key) {
  if (const Ghost ghost = ghosts_.find(key)) forget_ghost(ghost);
}

Slot Gittins::choose() {
  if (heap_.empty()) return kNoSlot;
  close();
  if (adopted_ != nullptr) end_adoption(std::numeric_limits<std::size_t>::max());
  const Id id = heap_.top();
  const bool blocked = heap_.rank_at(0).blocked;
  Segment& segment = segments_[id];
  const Slot slot = segment.chain.pop_front();
  tree_[slot].evictable = false;
  --size_;
  const std::uint32_t place = segment.tail--;
  if (id != kSpill) {
    ++evictions_[static_cast<std::size_t>(segment.bucket)];
    remember(id, keys_[slot], place);
  }
  const Slot next = segment.chain.front();
  if (next != kNoSlot) fetch(segment.chain.next(next));  // what the choice after the next reads
  const Slot parent = tree_.empty(slot);
  // Mostly the segment stays on top, and nothing has to move.
  if (blocked || parent != next || parent == kNoSlot || tree_[parent].children > 0) {
    refresh(id);
    uncover(parent);
  }
  retire_if_empty(id);
  return slot;
}

// Walks the heap from its top, and keeps on the side what the victims so far change.
std::vector<Slot> Gittins::peek(std::size_t n) const {
  struct Offer {
    gittins::Rank rank;
    Id id;
    std::size_t place;  // in the heap; kMoved for what is not where the heap has it
    Slot slot;
    bool operator<(const Offer& other) const { return other.rank < rank; }
  };
  constexpr std::size_t kMoved = ~std::size_t{0};
  std::vector<Slot> out;
  std::priority_queue<Offer> offers;
  std::unordered_map<Id, Slot> next_of;          // where it is not the chain's first
  std::unordered_map<Slot, std::uint32_t> lost;  // children
  const auto is_leaf = [&](Slot slot) {
    const auto found = lost.find(slot);
    return tree_[slot].children == (found == lost.end() ? 0 : found->second);
  };
  const auto walk = [&](std::size_t place) {
    if (place < heap_.size()) offers.push({heap_.rank_at(place), heap_.id_at(place), place, kNoSlot});
  };
  const auto move = [&](Id id, Slot slot) {
    next_of[id] = slot;
    if (slot == kNoSlot) return;
    offers.push({{!is_leaf(slot), segments_[id].index, segments_[id].ticket}, id, kMoved, slot});
  };
  walk(0);
  while (out.size() < std::min<std::size_t>(n, size_)) {
    Offer offer = offers.top();
    offers.pop();
    if (offer.place != kMoved) {
      walk(2 * offer.place + 1);
      walk(2 * offer.place + 2);
      if (next_of.contains(offer.id)) continue;
      offer.slot = segments_[offer.id].chain.front();
    } else if (next_of[offer.id] != offer.slot || offer.rank.blocked == is_leaf(offer.slot)) {
      continue;
    }
    out.push_back(offer.slot);
    const Slot parent = tree_.parent(offer.slot);
    if (parent != kNoSlot) ++lost[parent];
    move(offer.id, segments_[offer.id].chain.next(offer.slot));
    if (parent == kNoSlot || !tree_[parent].evictable || !is_leaf(parent)) continue;
    const Id id = tree_[parent].segment;
    const auto moved = next_of.find(id);
    if (id != offer.id && (moved == next_of.end() ? segments_[id].chain.front() : moved->second) == parent) {
      move(id, parent);
    }
  }
  return out;
}

void Gittins::clear() {
  hazard_.clear();
  tree_.clear();
  segments_.clear();
  segments_[kSpill].index = -1.0f;
  heap_.clear();
  timers_.clear();
  ghosts_.clear();
  running_.clear();
  templates_.clear();
  size_ = tickets_ = 0;
  hits_.fill(0);
  ghost_returns_.fill(0);
  evictions_.fill(0);
  gone_ = 0;
  mean_size_ = now_ = due_ = 0.0;
  releasing_ = false;
  open_ = kNone;
  path_left_ = 0;
  last_ = kNoSlot;
  adopted_.reset();
  unlearn_all();
  ghost_hits_ = 0;
}

void Gittins::check() const {
  std::uint32_t free = 0;
  std::size_t gone = 0;
  std::vector<std::uint32_t> members(segments_.capacity(), 0);
  for (Slot slot = 0; slot < num_slots(); ++slot) {
    const auto& block = tree_[slot];
    require(!block.evictable || (knows(slot) && block.segment != kNone), "gittins: an evictable block is not known");
    if (block.segment != kNone) ++members[block.segment];
  }
  for (Id id = 0; id < segments_.capacity(); ++id) {
    const Segment& segment = segments_[id];
    segment.chain.check([&](Slot slot) {
      require(tree_[slot].evictable && tree_[slot].segment == id, "gittins: a segment has a block that is not its own");
    });
    require(members[id] == segment.chain.size() + segment.taken, "gittins: a segment has another size");
    require(heap_.contains(id) == !segment.chain.empty(), "gittins: the heap has other segments");
    require(!segment.adopted || adopted_ != nullptr, "gittins: a segment waits for blocks that will not come");
    require((segment.num_keys == 0) == (segment.gone == 0), "gittins: keys of no block, or a block without keys");
    free += segment.chain.size();
    gone += segment.gone;
  }
  require(free == size_, "gittins: an evictable block is in no segment");
  require(gone == gone_ && gone_ <= kMostGone * num_slots(), "gittins: what is gone does not add up");
  for (std::size_t place = 0; place < heap_.size(); ++place) {
    const Segment& segment = segments_[heap_.id_at(place)];
    const gittins::Rank& rank = heap_.rank_at(place);
    require(rank.index == segment.index && rank.ticket == segment.ticket &&
                rank.blocked == (tree_[segment.chain.front()].children > 0),
            "gittins: the heap has another rank");
  }
  tree_.check();
  heap_.check();
  ghosts_.check();
}

}  // namespace eviction
