// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork

#include "hand_over.h"

#include <algorithm>
#include <unordered_map>

namespace eviction {

HandOverPlan plan_hand_over(std::unique_ptr<Policy> fresh, const Snapshot& snapshot, std::vector<Resident> residents) {
  std::sort(residents.begin(), residents.end(),
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
