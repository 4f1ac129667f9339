// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
//
// A prompt whose cached blocks lie in several runs has holes between them. An engine
// that can fill a hole computes only that, and goes on behind the run; but each run
// that it stops at may cost a step of prefill more. Here: which runs are worth it. The
// engine and the pool model ask the same question.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "types.h"

namespace eviction {

struct HoleRule {
  RecomputeCost cost = {};
  std::uint32_t block_size = 1;  // tokens
  std::uint32_t budget = 1;      // blocks that a step of prefill computes at most
  float step = 0.0f;             // cost of a further step, in units of one block at depth zero

  // Of a step's tokens, and of what a further step costs in tokens at depth zero.
  static HoleRule of_tokens(const RecomputeCost& cost, std::uint32_t block_size, std::uint32_t budget, float step) {
    return {cost, block_size, std::max(1u, budget / block_size), step / static_cast<float>(block_size)};
  }
};

// Blocks [first, end) of a prompt.
struct BlockRun {
  std::uint32_t first;
  std::uint32_t end;
};

// The runs behind `prefix` that save more than the further steps cost, in order; the
// rest is computed as if it were not cached. From left to right: a run is judged by the
// hole before it, since the last one that is kept, and the hole behind it.
//   cached(i)   whether block i of the prompt is
//   prefix      blocks of the cached prefix: block `prefix` is not cached
//   limit       blocks that may be reused at most
//   length      blocks of the prompt, the last one perhaps not full
template <class Cached>
std::vector<BlockRun> runs_worth_keeping(Cached cached, std::uint32_t prefix, std::uint32_t limit, std::uint32_t length,
                                         const HoleRule& rule) {
  std::vector<BlockRun> all;
  for (std::uint32_t i = prefix; i < limit; ++i) {
    if (!cached(i)) continue;
    if (all.empty() || all.back().end != i) all.push_back({i, i});
    all.back().end = i + 1;
  }
  const auto steps = [&](std::uint32_t blocks) { return (blocks + rule.budget - 1) / rule.budget; };
  std::vector<BlockRun> kept;
  std::uint32_t reached = prefix;
  for (std::size_t at = 0; at < all.size(); ++at) {
    const BlockRun run = all[at];
    const std::uint32_t next = at + 1 < all.size() ? all[at + 1].first : length;
    const std::uint32_t apart = steps(run.first - reached) + steps(next - run.end);
    const std::uint32_t together = steps(next - reached);
    float saved = 0.0f;
    for (std::uint32_t i = run.first; i < run.end; ++i) saved += rule.cost((i + 1) * rule.block_size);
    if (apart > together && saved <= rule.step * static_cast<float>(apart - together)) continue;
    kept.push_back(run);
    reached = run.end;
  }
  return kept;
}

}  // namespace eviction
