// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
//
// What keeping a group of blocks is worth: its Gittins index (Gittins, "Bandit
// processes and dynamic allocation indices", 1979) for the choice between holding it
// until it returns and giving up, at the best time to give up:
//
//   max over tau of  P(it returns within tau) / E[seconds that it is held until then]
//
// The maximum matters. A group whose owner is away for a minute has a low hazard now
// and a high one soon; an index of the present hazard alone evicts it.
#pragma once

#include <algorithm>

#include "hazard_model.h"

namespace eviction::gittins {

// In returns a second. `hazard_of` is asked for the buckets from `from` on, in order. In a
// bucket with a return the group is held for half of the bucket, on average. The time to
// give up is mostly near: once the return of all that is left would not raise the best, if
// it came at no cost, nothing can, and the rest is not looked at.
template <typename HazardOf>
double gittins_index(HazardOf hazard_of, const Ages& ages, int from) {
  double stays = 1.0;
  double returns = 0.0;
  double held = 0.0;
  double best = 0.0;
  for (int bucket = from; bucket < kBuckets; ++bucket) {
    const double hazard = hazard_of(bucket);
    returns += stays * hazard;
    held += stays * ages.length(bucket) * (1.0 - hazard / 2.0);
    stays *= 1.0 - hazard;
    best = std::max(best, returns / held);
    if (returns + stays <= best * held) break;
  }
  return best;
}

}  // namespace eviction::gittins
