// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
//
// When each block of a trace is used next, and Belady's order by it.
#pragma once

#include <limits>
#include <tuple>
#include <vector>

#include "oracle_trace.h"

namespace eviction {

inline constexpr std::uint32_t kNever = std::numeric_limits<std::uint32_t>::max();

// A resident block; in a heap, the next to go first: the one used last of all, and of
// those the deepest.
struct NextUse {
  std::uint32_t next_use;  // a request
  std::uint32_t depth;     // blocks before it
  std::uint32_t id;
  bool operator<(const NextUse& other) const {
    return std::tie(next_use, depth, id) < std::tie(other.next_use, other.depth, other.id);
  }
};

// Of each access's block: the request after this one that may be served it, or kNever.
inline std::vector<std::uint32_t> next_uses(const OracleTrace& trace) {
  std::vector<std::uint32_t> upcoming(trace.distinct(), kNever);
  const auto& requests = trace.requests();
  std::vector<std::uint32_t> out;
  if (!requests.empty()) out.resize(requests.back().first + requests.back().all);
  for (std::size_t at = requests.size(); at-- > 0;) {
    for (std::uint32_t i = 0; i < requests[at].all; ++i) {
      std::uint32_t& next = upcoming[trace.id(requests[at].first + i)];
      out[requests[at].first + i] = next;
      if (i < requests[at].findable) next = static_cast<std::uint32_t>(at);
    }
  }
  return out;
}

// A use leaves the entry behind that it ends. They come last, and never go.
inline void drop_past_uses(std::vector<NextUse>& heap, std::uint32_t now) {
  std::erase_if(heap, [now](const NextUse& entry) { return entry.next_use <= now; });
  std::make_heap(heap.begin(), heap.end());
}

}  // namespace eviction
