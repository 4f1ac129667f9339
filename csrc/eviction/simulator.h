// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
//
// Replays a trace on the pool model with a model of service time: requests arrive,
// wait in order, are admitted while there is room, hold their blocks for as long as
// prefill and decoding take, and release them. Offline only.
//
// A request is admitted when there is room for its prompt, and takes a block for its
// output when the last one is full, as in vLLM. Where vLLM would preempt another
// request because there is none, this one goes without: preemption is an answer to
// overload, which a cache study does not want.
//
// Holes are filled under a policy that leaves them. What a hole costs beside its blocks,
// a further step perhaps, is in the rule and not in the time of service.
#pragma once

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <queue>
#include <span>
#include <vector>

#include "pool.h"
#include "shadow_set.h"
#include "trace_view.h"

namespace eviction {

struct ServiceModel {
  double base = 0.2;             // seconds a request takes at least
  double prefill_rate = 8000.0;  // prompt tokens a second that are computed
  double decode_seconds = 0.02;  // a token
  std::size_t max_running = 64;
};

class Simulator {
 public:
  struct Counts {
    std::uint64_t requests = 0;      // admitted
    std::uint64_t query_blocks = 0;  // full blocks of prompts
    std::uint64_t hit_blocks = 0;
    std::uint64_t query_tokens = 0;
    std::uint64_t hit_tokens = 0;
    std::uint64_t refused = 0;  // larger than the whole pool
    double waited = 0.0;        // seconds, all requests together
    double free_blocks = 0.0;   // summed over admissions
    double saved = 0.0;         // cost of the hits
    // Missed runs before a request's last hit: what its end adds is none of them.
    std::uint64_t filled_holes = 0;
    std::uint64_t filled_blocks = 0;
  };

  Simulator(TraceView trace, std::uint32_t block_size, std::unique_ptr<Policy> policy, ServiceModel service,
            RecomputeCost cost = {}, const std::optional<HoleRule>& hole_rule = {})
      : trace_(trace),
        block_size_(block_size),
        service_(service),
        hole_rule_(hole_rule),
        pool_(std::move(policy), {{0}, block_size, cost}, true),
        hits_(trace.arrivals.size(), 0),
        holes_(trace.arrivals.size(), 0) {
    choose_holes();
    if (trace.last_key != kNoKey) pool_.number_keys(trace.last_key);
  }

  // Shadows that are fed from now on, or null. Not owned.
  void attach(ShadowSet* shadows) { shadows_ = shadows; }
  // Admitted prompts' keys are appended to it, or null. Not owned.
  void record(std::vector<Key>* keys) { recorded_ = keys; }

  bool done() const { return next_ == trace_.arrivals.size() && events_.empty() && waiting_.empty(); }
  // The time of the next event; infinity when done.
  double next_time() const;
  // Handles all events before `time`.
  void run_until(double time);

  // Puts the policy of a shadow in charge, with its order.
  void hand_over(ShadowSet& shadows, std::size_t candidate);

  const Counts& counts() const { return counts_; }
  // Blocks that each request hit, in the trace's order; zero before its admission.
  const std::vector<std::uint32_t>& hits() const { return hits_; }
  // Runs of full prompt blocks that each request computed, that at its end included.
  const std::vector<std::uint32_t>& holes() const { return holes_; }
  Pool& pool() { return pool_; }

 private:
  // A running request takes a block for its output, or ends.
  struct Event {
    double time;
    std::size_t request;
    double origin;        // output token j is sampled j tokens' times later
    std::uint32_t token;  // that is sampled now; the last one ends the request
    bool operator>(const Event& other) const {
      return time != other.time ? time > other.time : request > other.request;
    }
  };

  std::span<const Key> keys_of(std::size_t request, std::uint32_t blocks) const {
    return trace_.keys.subspan(trace_.offsets[request], blocks);
  }
  std::uint32_t all_blocks(std::size_t request) const {
    return static_cast<std::uint32_t>(trace_.offsets[request + 1] - trace_.offsets[request]);
  }
  // No engine answers with nothing.
  std::uint32_t output_tokens(std::size_t request) const { return std::max(1u, trace_.output_tokens[request]); }
  void expect(std::size_t request, double origin, std::uint32_t sampled);
  void handle(const Event& event);
  void admit_waiting(double now);
  void choose_holes() { pool_.fill_holes(pool_.queue().policy().traits().fills_holes ? hole_rule_ : std::nullopt); }

  TraceView trace_;
  std::uint32_t block_size_;
  ServiceModel service_;
  std::optional<HoleRule> hole_rule_;
  Pool pool_;
  ShadowSet* shadows_ = nullptr;
  std::vector<Key>* recorded_ = nullptr;
  std::size_t next_ = 0;
  std::deque<std::size_t> waiting_;
  std::size_t running_ = 0;
  std::priority_queue<Event, std::vector<Event>, std::greater<Event>> events_;
  Counts counts_;
  std::vector<std::uint32_t> hits_;
  std::vector<std::uint32_t> holes_;
};

}  // namespace eviction
