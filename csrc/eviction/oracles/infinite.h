// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
//
// A cache that keeps everything: what the traffic repeats, and the end of every curve.
#pragma once

#include "oracle_trace.h"

namespace eviction {

inline OracleCounts replay_infinite(const OracleTrace& trace) {
  OracleCounts counts;
  std::vector<bool> resident(trace.distinct(), false);
  for (const OracleTrace::Request& request : trace.requests()) {
    std::uint32_t hits = 0;
    while (hits < request.findable && resident[trace.id(request.first + hits)]) ++hits;
    counts.query_blocks += request.prompt;
    counts.hit_blocks += hits;
    counts.hits.push_back(hits);
    for (std::uint32_t i = 0; i < request.all; ++i) resident[trace.id(request.first + i)] = true;
  }
  return counts;
}

}  // namespace eviction
