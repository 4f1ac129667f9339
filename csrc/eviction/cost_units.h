// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
//
// A block's recompute cost as a whole number, in units of 1/256 of that of a block at
// depth zero: priorities made of it are exact, and fit in what a hand-over says of a
// block. From 1/256 to 8,191.
#pragma once

#include <algorithm>
#include <cmath>

#include "types.h"

namespace eviction {

inline constexpr int kCostBits = 21;

inline std::uint32_t cost_units(float cost) {
  return static_cast<std::uint32_t>(std::lround(std::clamp(256 * cost, 1.0f, float{(1u << kCostBits) - 1})));
}

}  // namespace eviction
