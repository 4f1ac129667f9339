// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
//
// The shadows on their thread count what shadows in step with the caller count.
#pragma once

#include <random>
#include <vector>

#include "shadow_host.h"

namespace eviction {

inline std::vector<Candidate> all_candidates() {
  std::vector<Candidate> candidates;
  for (const std::string& name : native_policies()) candidates.push_back({name, {}});
  return candidates;
}

// Sends the same random requests to both; they ask and are asked all the time.
inline void stress_shadows(std::uint64_t seed) {
  constexpr std::uint32_t kBlocks = 40;
  std::mt19937_64 random(seed);
  ShadowHost threaded(kBlocks, 16, all_candidates(), {0}, {.threaded = true, .record_window = true});
  ShadowHost in_step(kBlocks, 16, all_candidates(), {0}, {.threaded = false, .record_window = true});
  ShadowHost* const hosts[] = {&threaded, &in_step};
  std::vector<Serial> running;
  Serial serial = 0;
  for (int step = 0; step < 20000; ++step) {
    switch (random() % 8) {
      case 0:
      case 1:
      case 2: {
        const Key path = random() % 12;
        std::vector<Key> keys;
        for (std::uint64_t n = 1 + random() % 6; n > 0; --n) keys.push_back(1 + keys.size() + 100 * path);
        const auto num_blocks = static_cast<std::uint32_t>(keys.size() + random() % 3);
        const auto tokens = static_cast<std::uint32_t>(16 * keys.size() + random() % 16);
        running.push_back(++serial);
        for (ShadowHost* host : hosts) host->admit(serial, keys, tokens, num_blocks, step);
        break;
      }
      case 3:
      case 4:
      case 5:
        if (running.empty()) break;
        for (ShadowHost* host : hosts) host->finish(running.back(), {}, step);
        running.pop_back();
        break;
      case 6:
        for (ShadowHost* host : hosts) host->advance(step);
        if (random() % 50 == 0) {
          for (ShadowHost* host : hosts) host->mark(step % 2 == 0 ? 20 : 0);
          threaded.poll_answer();
        }
        break;
      default:
        if (random() % 100 == 0) {
          for (ShadowHost* host : hosts) host->reset();
        }
        if (random() % 50 == 0) {
          for (ShadowHost* host : hosts) host->ask_for_plan(step % native_policies().size(), kBlocks, {});
          threaded.poll_plan();
        }
    }
  }
  for (ShadowHost* host : hosts) {
    host->mark();
    host->drain();
    require(host->failure().empty(), "a shadow failed");
    require(host->dropped() == 0, "the inbox was too small");
  }
  const auto there = threaded.poll_answer();
  const auto here = in_step.poll_answer();
  require(there && here && there->mark == here->mark, "an answer is missing");
  require(here->query_tokens > 0 && here->hit_tokens.front() > 0, "the traffic hits nothing");
  require(there->query_tokens == here->query_tokens && there->hit_tokens == here->hit_tokens, "other counts");
}

// What does not fit is left out, and the rest goes on; also when no one ever waits.
inline void overflow_shadows(std::uint64_t) {
  ShadowHost host(8, 16, all_candidates(), {0}, {.threaded = true, .max_pending_words = 64});
  const std::vector<Key> keys{1, 2, 3, 4};
  for (Serial serial = 1; serial < 20000; ++serial) {
    host.admit(serial, keys, 64, 4, 0.0);
    host.finish(serial, keys, 0.0);
  }
  host.drain();
  require(host.failure().empty() && host.dropped() > 0, "nothing was left out");
}

}  // namespace eviction
