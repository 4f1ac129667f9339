// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
//
// Order and observer of `gittins`; the hand-over is in gittins_hand_over.cpp.

#include "gittins.h"

#include <algorithm>
#include <cmath>
#include <queue>
#include <unordered_map>
#include <utility>

#include "gittins_adopted.h"

namespace eviction {

using gittins::Attributes;
using gittins::Request;
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

// ---- Order. ----

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
  if (adopted_ != nullptr) forget_adopted();
  const Id id = heap_.top();
  const bool blocked = heap_.rank_at(0).blocked;
  Segment& segment = segments_[id];
  const Slot slot = segment.chain.pop_front();
  tree_[slot].evictable = false;
  --size_;
  const std::uint32_t place = segment.tail--;
  if (id != kSpill) remember(id, keys_[slot], place);
  const Slot next = segment.chain.front();
  if (next != kNoSlot) tree_.prefetch(next);
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
  gone_ = 0;
  mean_size_ = now_ = 0.0;
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
    require(segment.num_keys == 0 || segment.gone > 0 || segment.taken + segment.chain.size() > 0,
            "gittins: keys of no segment");
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

// ---- Releases. ----

void Gittins::release(Slot slot, std::uint32_t place) {
  releasing_ = true;
  settle(slot);
  gittins::BlockTree::Block& block = tree_[slot];
  Id id = kNone;
  if (last_ != kNoSlot) {
    if (place != kUnplaced && place + 1 == last_place_) uncover(tree_.link(last_, slot));
    const gittins::BlockTree::Block& below = tree_[last_];
    if (tree_.parent(last_) != slot) {
      find_parent_of_last();
    } else if (below.segment != kSpill && below.learnt.alike(block.learnt) &&
               (place == kUnplaced) == (last_place_ == kUnplaced)) {
      id = below.segment;
    }
  }
  const bool opens = id == kNone;
  if (opens) id = open_segment(slot, place);
  block.segment = id;
  block.evictable = true;
  segments_[id].chain.push_back(slot);
  ++size_;
  if (opens) refresh(id);
  last_ = slot;
  last_place_ = place;
}

// The place of a block on the path that is released; kUnplaced when it is not on it. The
// deepest comes first, and of several KV-cache groups the first group does: so the path
// is walked from its end, and round.
std::uint32_t Gittins::locate(Key key) {
  for (; path_left_ > 0; --path_left_) {
    path_at_ = path_at_ == 0 ? path_.size() - 1 : path_at_ - 1;
    if (path_[path_at_] == key) return static_cast<std::uint32_t>(path_at_);
  }
  return kUnplaced;
}

Gittins::Id Gittins::open_segment(Slot slot, std::uint32_t place) {
  const bool unknown = adopted_ != nullptr && !adopted_->placing;  // to the pool that hands over
  while (!unknown && segments_.full() && ghosts_.oldest()) forget_ghost(ghosts_.oldest());
  if (unknown || segments_.full()) {
    segments_[kSpill].birth = now_;
    return kSpill;
  }
  const bool placed = place != kUnplaced;
  const Id id = segments_.add();
  Segment& segment = segments_[id];
  segment.learnt = tree_[slot].learnt;
  segment.x = describe(segment.learnt, placed);
  segment.birth = now_;
  segment.ticket = tickets_++;
  segment.tail = segment.end = place;
  if (placed) {
    segment.prompt = finishing_.prompt;
    segment.origin = finishing_.origin;
  }
  segment.index = index_of(segment);
  timers_.start(id, 1);
  complete_segment();
  open_ = id;
  return id;
}

// The block above the last one was not released: a request holds it still. It is the
// last one that this request hit, or that another did.
void Gittins::find_parent_of_last() {
  if (last_place_ == kUnplaced || last_place_ == 0 || tree_.parent(last_) != kNoSlot) return;
  const Key key = path_[last_place_ - 1];
  const Request* const request = finishing_.stem_key == key ? &finishing_ : running_.with_stem(key);
  if (request == nullptr || request->stem == last_) return;
  const bool holds = knows(request->stem) ? keys_[request->stem] == key : tree_.early(request->stem, key);
  if (!holds) return;
  tree_.link(last_, request->stem);
  if (tree_[request->stem].evictable) refresh(tree_[request->stem].segment);
}

void Gittins::close_releases() {
  releasing_ = false;
  if (last_ != kNoSlot) find_parent_of_last();
  last_ = kNoSlot;
  path_left_ = 0;
  complete_segment();
}

void Gittins::complete_segment() {
  const Id id = std::exchange(open_, kNone);
  if (id != kNone) complete_segment(segments_[id], mean_size_);
}

void Gittins::complete_segment(Segment& segment, double& mean_size) {
  const double size = segment.chain.size();
  mean_size = mean_size == 0.0 ? size : 0.99 * mean_size + 0.01 * size;
  segment.weight = static_cast<float>(std::sqrt(std::min(8.0, size / mean_size)));
  segment.spacing = std::max(1u, segment.chain.size() / kKeys);
}

// ---- Segments. ----

gittins::Covariates Gittins::describe(const Attributes& learnt, bool placed) const {
  const auto octave = [](double x, int most) {
    return static_cast<std::int8_t>(x < 1.0 ? 0 : std::min(most, 1 + static_cast<int>(std::log2(x))));
  };
  gittins::Covariates x;
  x.shared = learnt.branches > 0;
  x.paced = learnt.paced();
  x.log_gap = learnt.log_gap();
  x.values[0] = static_cast<std::int8_t>(learnt.uses_class() + (x.shared ? 12 : 0));
  x.values[1] = static_cast<std::int8_t>(learnt.gap_class());
  if (x.shared) {
    x.values[5] = static_cast<std::int8_t>(learnt.branches_class());
    return x;
  }
  if (!placed || finishing_.prompt == 0) return x;
  x.values[2] = octave(finishing_.prompt - std::min(finishing_.prompt, finishing_.matched), 14);
  x.values[3] = octave(static_cast<double>(path_.size()), 15);
  x.values[4] = octave((now_ - finishing_.admitted) / 0.32, 14);
  const gittins::Templates::Template& origin = templates_[finishing_.origin];
  if (origin.ends > 2.0) {
    const int decile = std::clamp(static_cast<int>(10.0 * (origin.returns + 0.5) / (origin.ends + 1.0)), 0, 9);
    x.values[6] = static_cast<std::int8_t>(decile + (learnt.uses > 1 ? 10 : 0));
  }
  if (origin.returns > 1.0) {
    x.values[7] = static_cast<std::int8_t>(Attributes::octave_of_gap(origin.log_gaps / origin.returns));
  }
  return x;
}

float Gittins::index_of(const Segment& segment) const {
  gittins::Hazards hazards;
  hazard_.hazards(segment.x, segment.bucket, hazards);
  return static_cast<float>(gittins::gittins_index(hazards, hazard_.ages(), segment.bucket));
}

void Gittins::refresh(Id id) {
  const Segment& segment = segments_[id];
  if (segment.chain.empty()) {
    heap_.remove(id);
  } else {
    heap_.set(id, {tree_[segment.chain.front()].children > 0, segment.index, segment.ticket});
  }
}

// The block has lost a child, or is no parent any more: it may be a leaf now.
void Gittins::uncover(Slot parent) {
  if (parent == kNoSlot || !tree_[parent].evictable || tree_[parent].children > 0) return;
  const Id id = tree_[parent].segment;
  if (segments_[id].chain.front() == parent) refresh(id);
}

void Gittins::retire_if_empty(Id id) {
  if (id == kSpill || !segments_[id].empty()) return;
  heap_.remove(id);
  timers_.stop(id);
  segments_.remove(id);
}

// The block has left its segment; no one used it.
void Gittins::settle(Slot slot) {
  const Id id = std::exchange(tree_[slot].segment, kNone);
  if (id == kNone) return;
  --segments_[id].taken;
  retire_if_empty(id);
}

// So many of its blocks are used again now.
void Gittins::returned(Id id, std::uint32_t count) {
  Segment& segment = segments_[id];
  const double share = static_cast<double>(count) / segment.total();
  hazard_.learn(segment.x, hazard_.ages().bucket(now_ - segment.birth), true, segment.weight * share);
  segment.weight *= static_cast<float>(1.0 - share);
}

// ---- Ghosts. ----

void Gittins::remember(Id id, Key key, std::uint32_t place) {
  Segment& segment = segments_[id];
  segment.first_gone = place;
  ++segment.gone;
  ++gone_;
  ++segment.taken;  // so that it is not retired meanwhile
  while (gone_ > kMostGone * num_slots() && ghosts_.oldest()) forget_ghost(ghosts_.oldest());
  const std::uint32_t from_end = segment.end - place;
  if (segment.num_keys == 0 || gittins::GhostKeys::keeps(segment, place, from_end)) {
    if (const Ghost stale = ghosts_.find(key)) forget_ghost(stale);
    if (ghosts_.full()) forget_ghost(ghosts_.oldest());
    if (segment.gone == 0) {  // with its last key
      segment.first_gone = place;
      segment.gone = 1;
      ++gone_;
    }
    ghosts_.add(key, id, place);
    ++segment.num_keys;
  }
  --segment.taken;
}

// What lies behind the key in its segment cannot be found any more.
void Gittins::forget_ghost(Ghost ghost) {
  const Id id = ghosts_.segment(ghost);
  const std::uint32_t place = ghosts_.place(ghost);
  ghosts_.erase(ghost);
  if (id == kNone) return;
  Segment& segment = segments_[id];
  --segment.num_keys;
  const std::uint32_t left = segment.num_keys == 0 ? 0 : place - std::min(place, segment.first_gone);
  if (left < segment.gone) {
    gone_ -= segment.gone - left;
    segment.gone = left;
  }
  retire_if_empty(id);
}

// ---- Observer. ----

void Gittins::admit(const Admission& request) {
  advance(request.now);
  const std::uint32_t length = static_cast<std::uint32_t>(request.keys.size());
  std::uint32_t hits = 0;
  while (hits < length && request.slots[hits] != kNoSlot) ++hits;
  Request admitted;
  admitted.serial = request.serial;
  admitted.admitted = now_;
  admitted.prompt = length;
  find_ghosts(request, hits);
  admitted.matched = found_.empty() ? hits : found_.back().at + 1;
  if (hits > 0) {
    admitted.stem = request.slots[hits - 1];
    admitted.stem_key = request.keys[hits - 1];
  }
  const bool continues = continues_session(request, admitted, hits);
  use_hits(request, admitted, hits, continues);
  use_ghosts(request, admitted, continues);
  if (continues) {
    admitted.fresh = found_.empty() ? tree_[admitted.stem].learnt : admitted.returned[admitted.num_returned - 1].learnt;
    admitted.fresh.branches = 0;
  }
  running_.add(admitted);
}

void Gittins::find_ghosts(const Admission& request, std::uint32_t hits) {
  found_.clear();
  for (std::uint32_t at = hits; at < request.keys.size(); ++at) {
    if (request.slots[at] != kNoSlot) continue;
    const Ghost ghost = ghosts_.find(request.keys[at]);
    if (!ghost) continue;
    const Id id = ghosts_.segment(ghost);
    if (id == kNone) {  // another request asked for it a moment ago
      ++ghost_hits_;
      continue;
    }
    --segments_[id].num_keys;
    if (found_.empty() || found_.back().id != id) found_.push_back({id, 0, 0});
    found_.back() = {id, ghosts_.place(ghost), at};
    ghosts_.expect(ghost);
  }
}

// Whether the request is the next turn of the one that used its path last: then it knows
// nearly all of that one's prompt.
bool Gittins::continues_session(const Admission& request, Request& admitted, std::uint32_t hits) {
  Id id = kNone;
  if (!found_.empty()) {
    id = found_.back().id;
  } else if (hits > 0) {
    id = tree_[request.slots[hits - 1]].segment;
  }
  if (id == kNone || segments_[id].prompt == 0 || admitted.matched + kSlack < segments_[id].prompt) return false;
  admitted.origin = segments_[id].origin;
  templates_.returned(admitted.origin, std::log(std::max(Attributes::kInUse, now_ - segments_[id].birth)));
  return true;
}

void Gittins::use_hits(const Admission& request, Request& admitted, std::uint32_t hits, bool continues) {
  const std::uint16_t in_use = Attributes::gap_of(Attributes::kInUse);
  Id run = kNone;
  std::uint32_t count = 0;
  std::uint16_t gap = in_use;
  const auto end_run = [&] {
    if (run == kNone) return;
    returned(run, count);
    segments_[run].taken -= count;
    retire_if_empty(run);
  };
  for (std::uint32_t at = 0; at < request.keys.size(); ++at) {
    const Slot slot = request.slots[at];
    if (slot == kNoSlot) continue;
    gittins::BlockTree::Block& block = tree_[slot];
    if (block.evictable) continue;  // in a cache without blocks in use
    const bool known = knows(slot);
    if (!known && !tree_.early(slot, request.keys[at])) {
      reset(slot);
      tree_.set_early(slot, request.keys[at]);
    }
    if (block.segment != run) {
      end_run();
      run = block.segment;
      count = 0;
      gap = run == kNone ? in_use : Attributes::gap_of(now_ - segments_[run].birth);
    }
    ++count;
    block.segment = kNone;
    block.learnt = block.learnt.used_after(gap, continues);
    if (at >= hits) continue;  // of another KV-cache group
    if (!continues && block.learnt.branches >= 2) admitted.origin = templates_.id_of(request.keys[at]);
    // One that is not known yet gets its parent when it is released.
    if (at > 0 && known && knows(request.slots[at - 1])) uncover(tree_.link(slot, request.slots[at - 1]));
  }
  end_run();
}

void Gittins::use_ghosts(const Admission& request, Request& admitted, bool continues) {
  for (const Found& found : found_) {
    Segment& segment = segments_[found.id];
    const std::uint32_t depth = found.place < segment.first_gone ? 0 : found.place - segment.first_gone + 1;
    const std::uint32_t count = std::min(depth, segment.gone);
    if (count > 0) returned(found.id, count);
    ghost_hits_ += std::max(1u, count);
    segment.first_gone = found.place + 1;
    const std::uint32_t left = segment.num_keys == 0 ? 0 : segment.gone - count;
    gone_ -= segment.gone - left;
    segment.gone = left;
    const std::uint16_t gap = Attributes::gap_of(now_ - segment.birth);
    const Attributes learnt = segment.learnt.used_after(gap, continues);
    admitted.add_returned(found.at + 1, learnt);
    if (!continues && learnt.branches >= 2) admitted.origin = templates_.id_of(request.keys[found.at]);
    retire_if_empty(found.id);
  }
}

void Gittins::finish(Serial serial, std::span<const Key> cached, double now) {
  advance(now);
  const Request* const request = running_.find(serial);
  finishing_ = request == nullptr ? Request{} : *request;
  if (request != nullptr) {
    templates_.ended(finishing_.origin);
    running_.remove(serial);
  }
  path_.assign(cached.begin(), cached.end());
  path_at_ = 0;
  path_left_ = 2 * path_.size();
  releasing_ = true;
}

void Gittins::advance(double now) {
  close();
  now_ = std::max(now_, now);
  for (int bucket = 1; bucket < gittins::kBuckets; ++bucket) {
    for (Id id = timers_.first(bucket); id != kNone; id = timers_.first(bucket)) {
      Segment& segment = segments_[id];
      if (segment.birth + hazard_.ages().edge(bucket) > now_) break;
      timers_.stop(id);
      hazard_.learn(segment.x, bucket - 1, false, segment.weight);
      segment.bucket = static_cast<std::int8_t>(bucket);
      if (bucket + 1 < gittins::kBuckets) timers_.start(id, bucket + 1);
      if (segment.chain.empty()) continue;
      segment.index = index_of(segment);
      refresh(id);
    }
  }
}

}  // namespace eviction
