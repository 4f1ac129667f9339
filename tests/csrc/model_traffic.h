// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
//
// Random requests for the pool model, of one KV-cache group, with holes filled and
// without, and of two groups, of which one has a sliding window.
#pragma once

#include <algorithm>
#include <random>
#include <vector>

#include "policies/catalogue.h"
#include "pool.h"

namespace eviction {

class ModelTraffic {
 public:
  ModelTraffic(const std::string& policy, std::uint32_t num_blocks, const Layout& layout, std::uint64_t seed)
      : pool_(make_policy(policy, num_blocks, {}), layout), random_(seed) {}

  void step() {
    switch (below(8)) {
      case 0:
      case 1:
      case 2:
        admit();
        break;
      case 3:
      case 4: {
        if (running_.empty()) break;
        Running& request = running_[below(running_.size())];
        request.num_blocks += static_cast<std::uint32_t>(below(3));
        pool_.grow(request.serial, request.num_blocks, keys(request.path, below(request.num_blocks + 1)));
        break;
      }
      case 5:
      case 6: {
        if (running_.empty()) break;
        const std::size_t at = below(running_.size());
        const Running request = running_[at];
        running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(at));
        pool_.finish(request.serial, keys(request.path, below(request.num_blocks + 1)), 0.0);
        break;
      }
      default:
        if (below(30) == 0) pool_.reset();
    }
  }
  void check() const { pool_.check(); }

 private:
  struct Running {
    Serial serial;
    Key path;
    std::uint32_t num_blocks;
  };

  void admit() {
    const Running request{++serial_, below(6), 1 + static_cast<std::uint32_t>(below(6))};
    const auto prompt = static_cast<std::uint32_t>(below(request.num_blocks + 1));
    const auto hits = pool_.admit(request.serial, keys(request.path, prompt), prompt, request.num_blocks, 0.0);
    require(hits.hits <= prompt, "model traffic: more hits than blocks");
    if (hits.fits) running_.push_back(request);
  }
  // Paths share their first two blocks.
  std::vector<Key> keys(Key path, std::size_t n) {
    std::vector<Key> out;
    for (std::size_t group = 0; group < pool_.num_groups(); ++group) {
      for (std::size_t i = 0; i < n; ++i) out.push_back(1 + i + (i < 2 ? 0 : 100 * (1 + path)) + 10000 * group);
    }
    return out;
  }
  std::uint64_t below(std::uint64_t bound) { return random_() % bound; }

  Pool pool_;
  std::mt19937_64 random_;
  std::vector<Running> running_;
  Serial serial_ = 0;
};

}  // namespace eviction
