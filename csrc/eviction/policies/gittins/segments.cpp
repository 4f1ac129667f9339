// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
//
// The segments of `gittins`: how released blocks become one, what is told of it, and how
// it is remembered when its blocks are gone.

#include <algorithm>
#include <cmath>
#include <utility>

#include "../gittins.h"
#include "adopted.h"

namespace eviction {

using gittins::Attributes;
using gittins::Request;
using gittins::Segment;

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
  due_ = std::min(due_, segment.birth + hazard_.ages().edge(1));
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
  return static_cast<float>(gittins::gittins_index(hazard_.hazard_of(segment.x), hazard_.ages(), segment.bucket));
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
void Gittins::returned(Id id, std::uint32_t count, gittins::CountsByAge& counts) {
  Segment& segment = segments_[id];
  const int bucket = hazard_.ages().bucket(now_ - segment.birth);
  if (id != kSpill) counts[static_cast<std::size_t>(bucket)] += count;
  const double share = static_cast<double>(count) / segment.total();
  hazard_.learn(segment.x, bucket, true, segment.weight * share);
  segment.weight *= static_cast<float>(1.0 - share);
}

// ---- Ghosts. ----

void Gittins::remember(Id id, Key key, std::uint32_t place) {
  Segment& segment = segments_[id];
  segment.first_gone = place;
  ++segment.gone;
  ++gone_;
  const bool too_many = gone_ > kMostGone * num_slots();
  const bool keeps = segment.num_keys == 0 || gittins::GhostKeys::keeps(segment, place, segment.end - place);
  if (!too_many && !keeps) return;
  ++segment.taken;  // so that it is not retired meanwhile
  while (gone_ > kMostGone * num_slots() && ghosts_.oldest()) forget_ghost(ghosts_.oldest());
  if (segment.num_keys == 0 || keeps) {
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

// What lies behind the key in its segment cannot be found any more, unless there are
// keys behind it still.
void Gittins::forget_ghost(Ghost ghost) {
  const Id id = ghosts_.segment(ghost);
  const std::uint32_t place = ghosts_.place(ghost);
  ghosts_.erase(ghost);
  if (id == kNone) return;
  Segment& segment = segments_[id];
  --segment.num_keys;
  const std::uint32_t left = segment.num_keys == 0 ? 0 : std::max(1u, place - std::min(place, segment.first_gone));
  if (left < segment.gone) {
    gone_ -= segment.gone - left;
    segment.gone = left;
  }
  retire_if_empty(id);
}

}  // namespace eviction
