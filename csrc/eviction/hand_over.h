// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
//
// A free queue changes its policy without a cold start: the new order is that of
// the policy's shadow, which has seen all of the traffic. The shadow has other
// residents in other slots, so blocks are matched by key. What the shadow does not
// know enters as new, ahead of what it knows, in its order of release.
//
// A pool can have half a million free blocks and a scheduler step must not wait
// for them, so the work is cut in three:
//   1. the live queue copies what it holds (`Residents`), slice by slice;
//   2. anyone, on any thread, makes a plan of it: sorting and matching;
//   3. the live queue carries the plan out, slice by slice, while the old policy
//      goes on choosing victims (successor.h). An item of the plan whose block has
//      another content by then is passed over, and what was released since the plan
//      was asked for comes behind it, in order of release.
#pragma once

#include <memory>
#include <vector>

#include "policy.h"

namespace eviction {

struct Resident {
  Slot slot;
  Key key;
  std::uint64_t released;  // clock of its last release; orders what is not known
  bool evictable;
};

struct HandOverPlan {
  struct Item {
    Slot slot;
    bool known;
    Snapshot::Entry entry;  // of a block that is not known, only the key
  };
  std::unique_ptr<Policy> next;  // has the shadow's ghosts and scalars already
  std::vector<Item> items;       // in the order in which they are to be placed
};

// `fresh`: a new instance of the snapshot's policy, for the live pool's slots; may be
// null, then only the items are made. Of a slot that was copied twice, the later copy
// counts.
HandOverPlan plan_hand_over(std::unique_ptr<Policy> fresh, const Snapshot& snapshot, std::vector<Resident> residents);

}  // namespace eviction
