// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork

#include "hand_over.h"

#include <algorithm>
#include <unordered_map>

namespace eviction {
namespace {

void keep_last_copies(std::vector<Resident>& residents) {
  Slot last = 0;
  for (const Resident& resident : residents) last = std::max(last, resident.slot);
  std::vector<bool> seen(std::size_t{last} + 1, false);
  std::vector<Resident> kept;
  kept.reserve(residents.size());
  for (std::size_t i = residents.size(); i-- > 0;) {
    if (seen[residents[i].slot]) continue;
    seen[residents[i].slot] = true;
    kept.push_back(residents[i]);
  }
  std::reverse(kept.begin(), kept.end());
  residents = std::move(kept);
}

}  // namespace

HandOverPlan plan_hand_over(std::unique_ptr<Policy> fresh, const Snapshot& snapshot, std::vector<Resident> residents) {
  keep_last_copies(residents);
  // Stable, for pools that keep no time of release.
  std::stable_sort(residents.begin(), residents.end(),
                   [](const Resident& a, const Resident& b) { return a.released < b.released; });
  std::unordered_map<Key, Slot> wanted;
  wanted.reserve(snapshot.entries.size());
  for (const Snapshot::Entry& entry : snapshot.entries) wanted.emplace(entry.key, kNoSlot);

  HandOverPlan plan;
  plan.items.reserve(residents.size());
  for (const Resident& resident : residents) {
    const auto found = wanted.find(resident.key);
    if (found != wanted.end() && found->second == kNoSlot) {
      found->second = resident.slot;
    } else if (resident.evictable) {  // a held one is inserted when it is released
      plan.items.push_back({resident.slot, false, {resident.key, 0, 0}});
    }
  }
  for (const Snapshot::Entry& entry : snapshot.entries) {
    const Slot slot = wanted.at(entry.key);
    if (slot != kNoSlot) plan.items.push_back({slot, true, entry});
  }
  plan.next = std::move(fresh);
  if (plan.next != nullptr) plan.next->adopt_history(snapshot);
  return plan;
}

}  // namespace eviction
