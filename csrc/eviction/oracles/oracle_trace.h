// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
//
// A trace as the oracles see it: requests one after the other, in order of arrival,
// each over before the next one comes. No block is in use between two requests, and
// none is taken up by a block that is not full. That favours the oracles over the pool
// model, which is what a bound needs. Offline only: to know the future takes the whole
// trace, and four bytes a block besides it.
#pragma once

#include <algorithm>
#include <limits>
#include <vector>

#include "../trace_numbers.h"
#include "../trace_view.h"

namespace eviction {

struct OracleCounts {
  std::uint64_t query_blocks = 0;  // full blocks of prompts
  std::uint64_t hit_blocks = 0;
  std::uint64_t evictions = 0;      // blocks dropped, those that were never kept included
  std::vector<std::uint32_t> hits;  // of each request, blocks
};

class OracleTrace {
 public:
  // The blocks of `prompt`, `findable` and `all` are the first ones of a request: those
  // of its prompt, those that it may be served from the cache (the last prompt token
  // is always computed), and those that it leaves behind, with its output.
  struct Request {
    std::size_t first;  // of its accesses
    std::uint32_t findable, prompt, all;
  };

  OracleTrace(const TraceView& trace, std::uint32_t block_size) {
    const std::span<const Key> keys = trace.keys.subspan(0, trace.offsets.back());
    ids_.reserve(keys.size());
    if (trace.last_key != kNoKey) {  // they are numbers already
      for (const Key key : keys) ids_.push_back(static_cast<std::uint32_t>(key - 1));
      distinct_ = static_cast<std::uint32_t>(trace.last_key);
    } else {
      distinct_ = number_keys(keys, [this](std::uint32_t id) { ids_.push_back(id); });
    }
    for (std::size_t i = 0; i < trace.prompt_tokens.size(); ++i) {
      const auto all = static_cast<std::uint32_t>(trace.offsets[i + 1] - trace.offsets[i]);
      const std::uint32_t tokens = trace.prompt_tokens[i];
      requests_.push_back({trace.offsets[i], std::min(tokens == 0 ? 0 : (tokens - 1) / block_size, all),
                           std::min(tokens / block_size, all), all});
    }
  }

  const std::vector<Request>& requests() const { return requests_; }
  // The block of an access, counted from zero.
  std::uint32_t id(std::size_t access) const { return ids_[access]; }
  std::uint32_t distinct() const { return distinct_; }

 private:
  std::vector<std::uint32_t> ids_;
  std::vector<Request> requests_;
  std::uint32_t distinct_ = 0;
};

}  // namespace eviction
