// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
//
// The words that every other file of the core is written in.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace eviction {

// A physical block of the pool: vLLM's block id.
using Slot = std::uint32_t;
inline constexpr Slot kNoSlot = 0xffffffffu;

// Names the content of a block: 64 bits of the block hash, mixed with its
// KV-cache group. Zero means "no content that a request could find".
using Key = std::uint64_t;
inline constexpr Key kNoKey = 0;

// Counts admissions; names a request without holding on to it.
using Serial = std::uint64_t;

// What is known of a block when it becomes evictable. A policy that does not
// need it ignores it; fields that the caller does not know keep these values. The
// live queue knows neither the parent nor the serial: a policy that needs them takes
// them from the requests.
struct BlockInfo {
  std::uint32_t depth = 0;  // tokens from the start of the prompt to the block's end
  Key parent = kNoKey;      // the block before it on the prefix path
  float cost = 1.0f;        // to recompute it, in units of one block at depth zero
  Serial serial = 0;        // the request that released it
};

// How much dearer a block is to recompute the deeper it lies: attention looks back
// over all tokens before it, in layers with a sliding window over those within.
struct RecomputeCost {
  float per_token = 0.0f;         // of depth, in units of one block at depth zero
  float per_window_token = 0.0f;  // of depth as far as the window reaches
  std::uint32_t window = 0;       // tokens

  float operator()(std::uint32_t depth) const {
    return 1.0f + per_token * static_cast<float>(depth) +
           per_window_token * static_cast<float>(depth < window ? depth : window);
  }
  // Of the first blocks of a prompt together.
  double of_prefix(std::uint32_t blocks, std::uint32_t block_size) const {
    const double n = blocks;
    const double within = window / block_size < blocks ? window / block_size : blocks;
    const double depths = block_size * n * (n + 1) / 2;
    const double in_window = block_size * within * (within + 1) / 2 + (n - within) * window;
    return n + per_token * depths + per_window_token * in_window;
  }
};

// An invariant of a policy or a queue does not hold. Thrown by `check` and by
// calls that the caller had no right to make; never swallowed in tests.
class BrokenInvariant : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

inline void require(bool holds, const char* what) {
  if (!holds) throw BrokenInvariant(what);
}

}  // namespace eviction
