// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork

#include "pool.h"

#include <algorithm>

namespace eviction {
// Leaves the slots of the hits in `found_`, kNoSlot for all other keys. A window's
// blocks ahead of its part of the hit are not looked up.
Pool::Located Pool::locate(std::span<const Key> keys, std::uint32_t limit) {
  const std::size_t groups = windows_.size();
  const std::uint32_t length = static_cast<std::uint32_t>(keys.size() / groups);
  found_.assign(keys.size(), kNoSlot);
  std::uint32_t hits = std::min(length, limit);
  bool sliding = false;
  for (std::size_t group = 0; group < groups; ++group) {
    if (windows_[group] != 0) {
      sliding = true;
      continue;
    }
    Slot* const found = found_.data() + group * length;
    std::uint32_t prefix = 0;
    const Key* const wanted = keys.data() + group * length;
    while (prefix < hits) {
      if (prefix + kAhead < hits) index_.prefetch(wanted[prefix + kAhead]);
      found[prefix] = find(wanted[prefix]);
      if (found[prefix] == kNoSlot) break;
      ++prefix;
    }
    hits = prefix;
  }
  // A window serves a prefix when the window's blocks at its end are there: walk
  // back until every sliding group agrees.
  for (bool agreed = !sliding; !agreed && hits > 0;) {
    agreed = true;
    for (std::size_t group = 0; group < groups; ++group) {
      std::uint32_t run = 0;
      while (run < std::min(windows_[group], hits)) {
        const std::size_t at = group * length + hits - 1 - run;
        found_[at] = find(keys[at]);
        if (found_[at] != kNoSlot) {
          ++run;
          continue;
        }
        hits -= run + 1;
        run = 0;
        agreed = false;
      }
    }
  }
  for (std::size_t group = 0; group < groups; ++group) {
    const std::uint32_t first = windows_[group] == 0 || hits <= windows_[group] ? 0 : hits - windows_[group];
    Slot* const found = found_.data() + group * length;
    std::fill(found, found + first, kNoSlot);
    std::fill(found + hits, found + length, kNoSlot);
  }
  if (fills_holes() && hits < std::min(length, limit)) return locate_runs(keys, hits, limit);
  return {hits, hits, hits};
}

// The runs behind the prefix, those that are worth it. The same for `found_`.
Pool::Located Pool::locate_runs(std::span<const Key> keys, std::uint32_t prefix, std::uint32_t limit) {
  const std::uint32_t findable = std::min(static_cast<std::uint32_t>(keys.size()), limit);
  const auto cached = [&](std::uint32_t i) {
    if (i + kAhead < findable) index_.prefetch(keys[i + kAhead]);
    found_[i] = find(keys[i]);
    return found_[i] != kNoSlot;
  };
  Located located{prefix, prefix, prefix};
  for (const BlockRun& run : runs_worth_keeping(cached, prefix, findable, limit + 1, *holes_)) {
    std::fill(found_.begin() + located.end, found_.begin() + run.first, kNoSlot);
    located.hits += run.end - run.first;
    located.end = run.end;
  }
  std::fill(found_.begin() + located.end, found_.end(), kNoSlot);
  return located;
}

Pool::Admitted Pool::describe(const Located& located) const {
  Admitted out{located.hits, true, 0, located.end - located.hits, cost_.of_prefix(located.prefix, block_size_)};
  for (std::uint32_t i = located.prefix; i < located.end; ++i) {
    if (found_[i] != kNoSlot) {
      out.saved += cost_((i + 1) * block_size_);
    } else if (i == 0 || found_[i - 1] != kNoSlot) {
      ++out.holes;
    }
  }
  return out;
}

Pool::Admitted Pool::admit(Serial serial, std::span<const Key> keys, std::uint32_t limit, std::uint32_t num_blocks,
                           double now) {
  const std::size_t groups = windows_.size();
  const std::uint32_t length = static_cast<std::uint32_t>(keys.size() / groups);
  const Located located = locate(keys, limit);
  Admitted admitted = describe(located);
  num_blocks = std::max(num_blocks, length);

  std::size_t wanted = 0;
  for (const Slot slot : found_) wanted += slot != kNoSlot && held_by_[slot] == 0;
  for (const std::uint32_t window : windows_) {
    wanted += window == 0 ? num_blocks - located.hits : std::min(num_blocks - located.hits, window);
  }
  admitted.fits = wanted <= num_free();
  if (!admitted.fits) return admitted;

  std::vector<Running>& request = running_[serial];
  request.resize(groups);
  for (std::size_t group = 0; group < groups; ++group) {
    Running& run = request[group];
    run.first = windows_[group] == 0 || located.end <= windows_[group] ? 0 : located.end - windows_[group];
    for (std::uint32_t i = run.first; i < located.end; ++i) {
      const Slot slot = found_[group * length + i];
      if (slot != kNoSlot) hold(slot);
      run.slots.push_back(slot);  // in a hole, for now, none
    }
  }
  for (std::size_t group = 0; group < groups; ++group) {
    const std::uint32_t window = windows_[group];
    Running& run = request[group];
    std::uint32_t start = located.end;
    std::uint32_t end = num_blocks;
    if (window != 0) {
      // Blocks between the hits and the prompt's last window come and go during
      // the prefill; they have no content and leave no trace.
      if (length > window) start = std::max(located.end, length - window);
      end = std::min(num_blocks, std::max(start + window, length));
      if (start > located.end) {
        release_all(serial, run);
        std::fill_n(found_.begin() + static_cast<std::ptrdiff_t>(group * length), length, kNoSlot);
        run.slots.clear();
        run.first = start;
      }
    }
    allocate(admitted.hole_blocks + end - std::min(start, end), run.slots);
    run.filled = start;
    if (admitted.hole_blocks > 0) close_holes(run, keys, located);
  }
  for (std::size_t group = 0; group < groups; ++group) fill(request[group], keys.subspan(group * length, length));
  queue_.admit({serial, keys, found_, now, length});
  return admitted;
}

// The blocks that were appended for the holes go to their places, and are filled.
void Pool::close_holes(Running& run, std::span<const Key> keys, const Located& located) {
  std::uint32_t next = located.end;
  for (std::uint32_t i = located.prefix; i < located.end; ++i) {
    if (run.slots[i] != kNoSlot) continue;
    run.slots[i] = run.slots[next++];
    fill(run.slots[i], keys[i]);
  }
  run.slots.erase(run.slots.begin() + located.end, run.slots.begin() + next);
}

void Pool::grow(Serial serial, std::uint32_t num_blocks, std::span<const Key> keys) {
  const auto found = running_.find(serial);
  if (found == running_.end()) return;
  const std::size_t length = keys.size() / windows_.size();
  for (std::size_t group = 0; group < windows_.size(); ++group) {
    Running& run = found->second[group];
    const std::uint32_t window = windows_[group];
    while (run.first + run.slots.size() < num_blocks && num_free() > 0) {
      allocate(1, run.slots);
      if (window != 0 && run.slots.size() > window + 1) {
        release(run.slots.front(), info_of(serial, run, 0));
        run.slots.erase(run.slots.begin());
        ++run.first;
      }
    }
    fill(run, keys.subspan(group * length, length));
  }
}

void Pool::finish(Serial serial, std::span<const Key> keys, double now) {
  grow(serial, static_cast<std::uint32_t>(keys.size() / windows_.size()), keys);
  const auto found = running_.find(serial);
  if (found == running_.end()) return;
  queue_.finish(serial, keys, now);
  for (const Running& run : found->second) release_all(serial, run);
  running_.erase(found);
}

BlockInfo Pool::info_of(Serial serial, const Running& run, std::size_t i) const {
  const std::uint32_t depth = (run.first + static_cast<std::uint32_t>(i) + 1) * block_size_;
  const Key parent = i > 0 ? policy_of().content(run.slots[i - 1]) : kNoKey;
  return {depth, parent, cost_(depth), serial};
}

// Tail first, as vLLM does.
void Pool::release_all(Serial serial, const Running& run) {
  for (std::size_t i = run.slots.size(); i-- > 0;) {
    if (i >= kAhead) queue_.prefetch(run.slots[i - kAhead], policy_of().content(run.slots[i - kAhead]));
    release(run.slots[i], info_of(serial, run, i));
  }
}

void Pool::reset() {
  index_.clear();
  copies_.clear();
  copied_.assign(copied_.size(), 0);
  queue_.reset();
  for (Slot slot = 0; slot < num_blocks(); ++slot) policy_of().set_content(slot, kNoKey);
  for (auto& [serial, request] : running_) {
    // What a running request has already computed stays unfindable.
    for (Running& run : request) run.filled = run.first + static_cast<std::uint32_t>(run.slots.size());
  }
}

void Pool::allocate(std::size_t n, std::vector<Slot>& out) {
  const std::size_t first = out.size();
  queue_.pop_n(n, *this, [&](Slot slot) { out.push_back(slot); });
  for (std::size_t i = first; i < out.size(); ++i) {
    if (i + kAhead < out.size()) index_.prefetch(policy_of().content(out[i + kAhead]));
    empty(out[i]);
    held_by_[out[i]] = 1;
  }
}

void Pool::fill(Slot slot, Key key) {
  const auto content = [this](std::uint32_t at) { return policy_of().content(at); };
  policy_of().set_content(slot, key);
  if (index_.insert_new(key, slot, content) != KeyIndex::kAbsent) add_copy(key, slot);
}

// Gives the blocks that became full their content.
void Pool::fill(Running& run, std::span<const Key> keys) {
  const std::uint32_t end = static_cast<std::uint32_t>(std::min(keys.size(), run.first + run.slots.size()));
  for (std::uint32_t i = std::max(run.filled, run.first); i < end; ++i) {
    if (i + kAhead < end) index_.prefetch(keys[i + kAhead]);
    fill(run.slots[i - run.first], keys[i]);
  }
  run.filled = std::max(run.filled, end);
}

void Pool::empty(Slot slot) {
  const Key key = policy_of().content(slot);
  if (key == kNoKey) return;
  policy_of().set_content(slot, kNoKey);
  const bool was_oldest = index_.erase_at(key, slot);
  if (!may_have_copies(key)) return;
  const auto found = copies_.find(key);
  if (found == copies_.end()) return;
  std::vector<Slot>& copies = found->second;
  if (was_oldest) {
    index_.insert(key, copies.front());
    copies.erase(copies.begin());
  } else {
    std::erase(copies, slot);
  }
  if (copies.empty()) {
    copies_.erase(found);
    --copied_[filter_of(key)];
  }
}

void Pool::add_copy(Key key, Slot slot) {
  const auto [copies, is_first] = copies_.try_emplace(key);
  copied_[filter_of(key)] += is_first;
  copies->second.push_back(slot);
}

void Pool::hold(Slot slot) {
  if (held_by_[slot]++ == 0) queue_.take(slot);
}

void Pool::release(Slot slot, const BlockInfo& info) {
  if (--held_by_[slot] > 0) return;
  const Key key = policy_of().content(slot);
  if (key == kNoKey) {
    queue_.push_blank(slot);
  } else {
    queue_.push(slot, key, info, duplicated(slot));
  }
}

void Pool::check() const {
  std::vector<std::uint16_t> held(num_blocks(), 0);
  for (const auto& [serial, request] : running_) {
    for (const Running& run : request) {
      require(run.filled <= run.first + run.slots.size(), "pool: a request filled more blocks than it holds");
      for (const Slot slot : run.slots) {
        require(slot < num_blocks(), "pool: a hole was left open");
        ++held[slot];
      }
    }
  }
  for (Slot slot = 0; slot < num_blocks(); ++slot) {
    require(held[slot] == held_by_[slot], "pool: a block is held by other requests than it says");
    require((held[slot] == 0) == queue_.contains(slot), "pool: a block is neither held nor free");
    const Key key = policy_of().content(slot);
    if (key == kNoKey) continue;
    const Slot oldest = find(key);
    require(oldest != kNoSlot, "pool: a content cannot be found");
    if (oldest == slot) continue;
    const auto copies = copies_.find(key);
    require(copies != copies_.end() && std::count(copies->second.begin(), copies->second.end(), slot) == 1,
            "pool: a second copy is not known");
  }
  queue_.check();
}

}  // namespace eviction
