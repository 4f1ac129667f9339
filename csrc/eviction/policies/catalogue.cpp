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
  // Leaves the field as it is when there is no such parameter.
  template <typename Field>
  void operator()(const std::string& name, Field& field) {
    const auto found = left_.find(name);
    if (found == left_.end()) return;
    field = static_cast<Field>(found->second);
    left_.erase(found);
  }
  void finish(const std::string& policy) const {
    if (!left_.empty()) throw std::invalid_argument(policy + " has no parameter " + left_.begin()->first);
  }

 private:
  Parameters left_;
};

using Factory = std::function<std::unique_ptr<Policy>(std::uint32_t, Reader&)>;

template <typename P>
Factory plain() {
  return [](std::uint32_t slots, Reader&) { return std::make_unique<P>(slots); };
}

// `fill` reads the parameters into the fields of a config.
template <typename P, typename Fill>
Factory configured(Fill fill) {
  return [fill](std::uint32_t slots, Reader& read) {
    typename P::Config config;
    fill(config, read);
    return std::make_unique<P>(slots, config);
  };
}

const std::map<std::string, Factory>& catalogue() {
  static const std::map<std::string, Factory> factories = {
      {"2q", configured<TwoQueue>([](auto& config, Reader& read) {
         read("in_ratio", config.in_ratio);
         read("ghost_ratio", config.ghost_ratio);
       })},
      {"arc", plain<Arc>()},
      {"asymcache", configured<AsymCache>([](auto& config, Reader& read) { read("half_life", config.half_life); })},
      {"gdsf", plain<Gdsf>()},
      {"lecar", configured<LeCaR>([](auto& config, Reader& read) {
         read("learning_rate", config.learning_rate);
         read("discount", config.discount);
         read("ghost_ratio", config.ghost_ratio);
         read("seed", config.seed);
       })},
      {"lfu", configured<Lfu>([](auto& config, Reader& read) { read("ageing", config.ageing); })},
      {"lhd", configured<Lhd>([](auto& config, Reader& read) {
         read("samples", config.samples);
         read("seed", config.seed);
       })},
      {"lirs", configured<Lirs>([](auto& config, Reader& read) {
         read("hir_ratio", config.hir_ratio);
         read("ghost_ratio", config.ghost_ratio);
       })},
      {"gittins", plain<Gittins>()},
      {"lru", plain<Lru>()},
      {"partial-compute", configured<PartialCompute>([](auto& config, Reader& read) {
         read("samples", config.samples);
         read("chunk", config.chunk);
         read("small_ratio", config.small_ratio);
         read("seed", config.seed);
       })},
      {"random-compute", configured<RandomCompute>([](auto& config, Reader& read) {
         read("samples", config.samples);
         read("seed", config.seed);
       })},
      {"s3fifo", configured<S3Fifo>([](auto& config, Reader& read) {
         read("small_ratio", config.small_ratio);
         read("ghost_ratio", config.ghost_ratio);
         read("promotion", config.promotion);
       })},
      {"s4fifo", configured<S3Fifo>([](auto& config, Reader& read) {
         read("rho_s", config.small_ratio);
         read("rho_g", config.ghost_ratio);
         config.kappa = 0.25;
         read("kappa", config.kappa);
         read("tau_s", config.promotion);
         read("tau_g", config.remembered_uses);
       })},
      {"session-lru", plain<SessionLru>()},
      {"sieve", plain<Sieve>()},
      {"slru", configured<Slru>([](auto& config, Reader& read) { read("protected_ratio", config.protected_ratio); })},
      {"t-lru", configured<TLru>([](auto& config, Reader& read) {
         read("xi", config.xi);
         read("next_prompt", config.next_prompt);
       })},
      {"workload-aware", configured<WorkloadAware>([](auto& config, Reader& read) {
         read("horizon", config.horizon);
         read("ghost_ratio", config.ghost_ratio);
       })},
      {"wtinylfu", configured<WTinyLfu>([](auto& config, Reader& read) {
         read("window_ratio", config.window_ratio);
         read("protected_ratio", config.protected_ratio);
         read("climb", config.climb);
         read("seed", config.seed);
       })},
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
