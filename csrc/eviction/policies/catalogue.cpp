// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork

#include "catalogue.h"

#include <functional>
#include <stdexcept>

#include "arc.h"
#include "asymcache.h"
#include "gdsf.h"
#include "gittins.h"
#include "lecar.h"
#include "lfu.h"
#include "lhd.h"
#include "lirs.h"
#include "lru.h"
#include "partial_compute.h"
#include "random_compute.h"
#include "s3fifo.h"
#include "session_lru.h"
#include "sieve.h"
#include "slru.h"
#include "t_lru.h"
#include "two_queue.h"
#include "workload_aware.h"
#include "wtinylfu.h"

namespace eviction {
namespace {

// Hands out parameters by name and knows at the end whether one was left over.
class Reader {
 public:
  explicit Reader(Parameters parameters) : left_(std::move(parameters)) {}
  double operator()(const std::string& name, double otherwise) {
    const auto found = left_.find(name);
    if (found == left_.end()) return otherwise;
    const double value = found->second;
    left_.erase(found);
    return value;
  }
  void finish(const std::string& policy) const {
    if (!left_.empty()) throw std::invalid_argument(policy + " has no parameter " + left_.begin()->first);
  }

 private:
  Parameters left_;
};

using Factory = std::function<std::unique_ptr<Policy>(std::uint32_t, Reader&)>;

const std::map<std::string, Factory>& catalogue() {
  static const std::map<std::string, Factory> factories = {
      {"2q",
       [](std::uint32_t slots, Reader& read) {
         TwoQueue::Config config;
         config.in_ratio = read("in_ratio", config.in_ratio);
         config.ghost_ratio = read("ghost_ratio", config.ghost_ratio);
         return std::make_unique<TwoQueue>(slots, config);
       }},
      {"arc", [](std::uint32_t slots, Reader&) { return std::make_unique<Arc>(slots); }},
      {"asymcache",
       [](std::uint32_t slots, Reader& read) {
         AsymCache::Config config;
         config.half_life = read("half_life", config.half_life);
         return std::make_unique<AsymCache>(slots, config);
       }},
      {"gdsf", [](std::uint32_t slots, Reader&) { return std::make_unique<Gdsf>(slots); }},
      {"lecar",
       [](std::uint32_t slots, Reader& read) {
         LeCaR::Config config;
         config.learning_rate = read("learning_rate", config.learning_rate);
         config.discount = read("discount", config.discount);
         config.ghost_ratio = read("ghost_ratio", config.ghost_ratio);
         config.seed = static_cast<std::uint32_t>(read("seed", config.seed));
         return std::make_unique<LeCaR>(slots, config);
       }},
      {"lfu",
       [](std::uint32_t slots, Reader& read) {
         Lfu::Config config;
         config.ageing = read("ageing", config.ageing) != 0.0;
         return std::make_unique<Lfu>(slots, config);
       }},
      {"lhd",
       [](std::uint32_t slots, Reader& read) {
         Lhd::Config config;
         config.samples = static_cast<std::uint32_t>(read("samples", config.samples));
         config.seed = static_cast<std::uint32_t>(read("seed", config.seed));
         return std::make_unique<Lhd>(slots, config);
       }},
      {"lirs",
       [](std::uint32_t slots, Reader& read) {
         Lirs::Config config;
         config.hir_ratio = read("hir_ratio", config.hir_ratio);
         config.ghost_ratio = read("ghost_ratio", config.ghost_ratio);
         return std::make_unique<Lirs>(slots, config);
       }},
      {"gittins", [](std::uint32_t slots, Reader&) { return std::make_unique<Gittins>(slots); }},
      {"lru", [](std::uint32_t slots, Reader&) { return std::make_unique<Lru>(slots); }},
      {"partial-compute",
       [](std::uint32_t slots, Reader& read) {
         PartialCompute::Config config;
         config.samples = static_cast<std::uint32_t>(read("samples", config.samples));
         config.chunk = static_cast<std::uint32_t>(read("chunk", config.chunk));
         config.seed = static_cast<std::uint32_t>(read("seed", config.seed));
         return std::make_unique<PartialCompute>(slots, config);
       }},
      {"random-compute",
       [](std::uint32_t slots, Reader& read) {
         RandomCompute::Config config;
         config.samples = static_cast<std::uint32_t>(read("samples", config.samples));
         config.seed = static_cast<std::uint32_t>(read("seed", config.seed));
         return std::make_unique<RandomCompute>(slots, config);
       }},
      {"s3fifo",
       [](std::uint32_t slots, Reader& read) {
         S3Fifo::Config config;
         config.small_ratio = read("small_ratio", config.small_ratio);
         config.ghost_ratio = read("ghost_ratio", config.ghost_ratio);
         config.promotion = static_cast<int>(read("promotion", config.promotion));
         return std::make_unique<S3Fifo>(slots, config);
       }},
      {"s4fifo",
       [](std::uint32_t slots, Reader& read) {
         S3Fifo::Config config;
         config.small_ratio = read("rho_s", config.small_ratio);
         config.ghost_ratio = read("rho_g", config.ghost_ratio);
         config.kappa = read("kappa", 0.25);
         config.promotion = static_cast<int>(read("tau_s", config.promotion));
         config.remembered_uses = static_cast<int>(read("tau_g", config.remembered_uses));
         return std::make_unique<S3Fifo>(slots, config);
       }},
      {"session-lru", [](std::uint32_t slots, Reader&) { return std::make_unique<SessionLru>(slots); }},
      {"sieve", [](std::uint32_t slots, Reader&) { return std::make_unique<Sieve>(slots); }},
      {"slru",
       [](std::uint32_t slots, Reader& read) {
         Slru::Config config;
         config.protected_ratio = read("protected_ratio", config.protected_ratio);
         return std::make_unique<Slru>(slots, config);
       }},
      {"t-lru",
       [](std::uint32_t slots, Reader& read) {
         TLru::Config config;
         config.xi = read("xi", config.xi);
         config.next_prompt = read("next_prompt", config.next_prompt);
         return std::make_unique<TLru>(slots, config);
       }},
      {"workload-aware",
       [](std::uint32_t slots, Reader& read) {
         WorkloadAware::Config config;
         config.horizon = read("horizon", config.horizon);
         config.ghost_ratio = read("ghost_ratio", config.ghost_ratio);
         return std::make_unique<WorkloadAware>(slots, config);
       }},
      {"wtinylfu",
       [](std::uint32_t slots, Reader& read) {
         WTinyLfu::Config config;
         config.window_ratio = read("window_ratio", config.window_ratio);
         config.protected_ratio = read("protected_ratio", config.protected_ratio);
         config.climb = read("climb", config.climb) != 0.0;
         config.seed = static_cast<std::uint32_t>(read("seed", config.seed));
         return std::make_unique<WTinyLfu>(slots, config);
       }},
  };
  return factories;
}

}  // namespace

std::vector<std::string> native_policies() {
  std::vector<std::string> names;
  for (const auto& [name, factory] : catalogue()) names.push_back(name);
  return names;
}

std::unique_ptr<Policy> make_policy(const std::string& name, std::uint32_t num_slots, const Parameters& parameters) {
  const auto found = catalogue().find(name);
  if (found == catalogue().end()) throw std::invalid_argument("no native policy is called " + name);
  Reader read(parameters);
  std::unique_ptr<Policy> policy = found->second(num_slots, read);
  read.finish(name);
  return policy;
}

}  // namespace eviction
