// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork

#include "policy.h"

#include <algorithm>
#include <unordered_map>

namespace eviction {

void Policy::adopt(std::span<const Slot> evictable, std::span<const Slot> held,
                   std::span<const Key> keys_by_slot, const Snapshot& snapshot) {
  struct Resident {
    Slot slot;
    bool evictable;
  };
  std::unordered_map<Key, Resident> wanted;
  wanted.reserve(snapshot.entries.size());
  for (const Snapshot::Entry& entry : snapshot.entries) wanted.emplace(entry.key, Resident{kNoSlot, false});

  for (const Slot slot : evictable) {
    const auto found = wanted.find(keys_by_slot[slot]);
    if (found == wanted.end() || found->second.slot != kNoSlot) {
      insert(slot, keys_by_slot[slot], BlockInfo{});
    } else {
      found->second = Resident{slot, true};
    }
  }
  for (const Slot slot : held) {
    const auto found = wanted.find(keys_by_slot[slot]);
    // A held block that the snapshot does not know is inserted when it is freed.
    if (found != wanted.end() && found->second.slot == kNoSlot) found->second = Resident{slot, false};
  }
  for (const Snapshot::Entry& entry : snapshot.entries) {
    const Resident& resident = wanted.at(entry.key);
    if (resident.slot != kNoSlot) place(resident.slot, entry, resident.evictable);
  }
  adopt_rest(snapshot);
}

}  // namespace eviction
