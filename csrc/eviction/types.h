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
// need it ignores it; fields that the caller does not know are zero.
struct BlockInfo {
  std::uint32_t depth = 0;  // tokens from the start of the prompt to the block's end
  Key parent = kNoKey;      // the block before it on the prefix path
  float cost = 0.0f;        // to recompute it, in units of one block at depth zero
  Serial serial = 0;        // the request that released it
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
