// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
//
// A trace as the simulator and the oracles read it: columns that somebody else owns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "types.h"

namespace eviction {

// Columns, one entry for each request, in order of arrival.
struct TraceView {
  std::span<const double> arrivals;  // seconds
  std::span<const std::uint32_t> prompt_tokens;
  std::span<const std::uint32_t> output_tokens;
  std::span<const std::uint64_t> offsets;  // one more than requests; into `keys`
  std::span<const Key> keys;               // full blocks of prompt and output
  Key last_key = kNoKey;                   // when keys are numbered, the last number
};

}  // namespace eviction
