// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
//
// What `gittins` sees of requests: which segments return, and which grow old.

#include <algorithm>
#include <cmath>
#include <limits>

#include "../gittins.h"

namespace eviction {

using gittins::Attributes;
using gittins::Request;
using gittins::Segment;

void Gittins::admit(const Admission& request) {
  advance(request.now);
  // What a session is shows on the path of one group; blocks of the others go with it.
  const std::size_t first_group = request.first_group == 0 ? request.keys.size() : request.first_group;
  const std::uint32_t length = static_cast<std::uint32_t>(first_group);
  std::uint32_t hits = 0;
  while (hits < length && request.slots[hits] != kNoSlot) ++hits;
  Request admitted;
  admitted.serial = request.serial;
  admitted.admitted = now_;
  admitted.prompt = length;
  find_ghosts(request, hits);
  admitted.matched = hits;
  std::size_t on_path = 0;
  while (on_path < found_.size() && found_[on_path].at < length) ++on_path;
  Id stem = kNone;  // the segment that the request leaves
  if (on_path > 0) {
    admitted.matched = found_[on_path - 1].at + 1;
    stem = found_[on_path - 1].id;
  } else if (hits > 0) {
    stem = tree_[request.slots[hits - 1]].segment;
  }
  if (hits > 0) {
    admitted.stem = request.slots[hits - 1];
    admitted.stem_key = request.keys[hits - 1];
  }
  const bool continues = continues_session(stem, admitted);
  use_hits(request, admitted, hits, continues);
  use_ghosts(request, admitted, continues);
  if (continues) {
    admitted.fresh = on_path == 0 ? tree_[admitted.stem].learnt : admitted.returned[admitted.num_returned - 1].learnt;
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
bool Gittins::continues_session(Id id, Request& admitted) {
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
    returned(run, count, hits_);
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
    if (count > 0) returned(found.id, count, ghost_returns_);
    ghost_hits_ += std::max(1u, count);
    segment.first_gone = found.place + 1;
    const std::uint32_t left = segment.num_keys == 0 ? 0 : std::max(1u, segment.gone - count);
    gone_ -= segment.gone - left;
    segment.gone = left;
    const std::uint16_t gap = Attributes::gap_of(now_ - segment.birth);
    const Attributes learnt = segment.learnt.used_after(gap, continues);
    retire_if_empty(found.id);
    if (found.at >= admitted.prompt) continue;  // of another KV-cache group
    admitted.add_returned(found.at + 1, learnt);
    if (!continues && learnt.branches >= 2) admitted.origin = templates_.id_of(request.keys[found.at]);
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

// After a long pause every segment has passed an edge, or many: they are worked off over
// the next calls, each edge in its turn, so that no step of the scheduler waits for all.
void Gittins::advance(double now) {
  close();
  now_ = std::max(now_, now);
  if (now_ < due_) return;
  due_ = std::numeric_limits<double>::infinity();
  std::size_t left = kEdgesAtOnce;
  for (int bucket = 1; bucket < gittins::kBuckets; ++bucket) {
    for (Id id = timers_.first(bucket); id != kNone; id = timers_.first(bucket)) {
      Segment& segment = segments_[id];
      const double passes = segment.birth + hazard_.ages().edge(bucket);
      if (passes > now_) {
        due_ = std::min(due_, passes);
        break;
      }
      if (left-- == 0) {
        due_ = now_;
        return;
      }
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
