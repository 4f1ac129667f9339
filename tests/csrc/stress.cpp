// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
//
// Long random traffic under AddressSanitizer and UndefinedBehaviorSanitizer, which
// see what a test from Python cannot. Every policy of the catalogue, in pools of one
// block to hundreds; policies that fail; the index and the ghost list by themselves.
//
//   eviction_stress [SEED]
//
// Prints a line for each case; on a failure the case, its seed and what broke.
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <string>

#include "bad_policies.h"
#include "fake_pool.h"
#include "model_traffic.h"
#include "shadow_traffic.h"
#include "structures.h"

namespace eviction {
namespace {

std::uint64_t g_seed = 1;

void run_case(const std::string& name, const std::function<void(std::uint64_t seed)>& body) {
  const std::uint64_t seed = g_seed++;
  try {
    body(seed);
  } catch (const std::exception& error) {
    std::printf("FAILED %s, seed %llu: %s\n", name.c_str(), static_cast<unsigned long long>(seed), error.what());
    std::exit(1);
  }
  std::printf("ok %s\n", name.c_str());
}

// Small pools are checked after every event, large ones now and then.
void traffic(FakePool& pool, std::uint32_t steps) {
  const std::uint32_t every = 1 + pool.queue().num_slots() / 16;
  for (std::uint32_t step = 0; step < steps; ++step) {
    pool.step();
    if (step % every == 0) pool.check();
  }
  pool.check();
}

void stress_policy(const std::string& name, const Parameters& parameters, FreeQueue::Order order, const char* label) {
  struct Size {
    std::uint32_t slots;
    std::uint32_t steps;
  };
  for (const Size size : {Size{1, 8000}, {2, 12000}, {3, 12000}, {7, 20000}, {40, 20000}, {600, 30000}}) {
    run_case(name + label + " " + std::to_string(size.slots), [&](std::uint64_t seed) {
      FakePool pool(make_policy(name, size.slots, parameters), order, seed);
      traffic(pool, size.steps);
      require(pool.queue().failure().empty(), "the policy failed");
      require(size.slots < 7 || pool.queue().evictions() > 1000, "the traffic evicts too little to mean anything");
    });
  }
}

void stress_every_policy() {
  for (const std::string& name : native_policies()) stress_policy(name, {}, FreeQueue::Order::kLive, "");
  stress_policy("lru", {}, FreeQueue::Order::kUpstream, " in vLLM's order");
  const Parameters odd{{"small_ratio", 0.9}, {"ghost_ratio", 0.0}, {"promotion", 3}};
  stress_policy("s3fifo", odd, FreeQueue::Order::kLive, " with a large small queue");
  const Parameters demoted{{"small_ratio", 0.3}, {"chunk", 3}, {"samples", 4}};
  stress_policy("partial-compute", demoted, FreeQueue::Order::kLive, " with a small queue");
  const Parameters many{{"small_ratio", 0.01}, {"ghost_ratio", 8.0}, {"promotion", 2}};
  stress_policy("s3fifo", many, FreeQueue::Order::kLive, " with many ghosts");
}

// The traffic goes on, and it is noticed, whatever is done wrong.
void stress_bad_policies() {
  for (const Fault fault : kFaults) {
    for (const std::uint32_t slots : {1u, 2u, 9u}) {
      for (const std::uint64_t good_calls : {0ull, 1ull, 50ull, 777ull}) {
        const std::string name = "bad policy, fault " + std::to_string(static_cast<int>(fault)) + ", slots " +
                                 std::to_string(slots) + ", after " + std::to_string(good_calls);
        run_case(name, [&](std::uint64_t seed) {
          FakePool pool(std::make_unique<BadPolicy>(slots, fault, good_calls), FreeQueue::Order::kLive, seed);
          pool.forbid_hand_over();
          traffic(pool, 4000);
          // In the smallest pools some faults cannot be told from a fair choice.
          require(slots < 9 || !pool.queue().failure().empty(), "the fault went unnoticed");
        });
      }
    }
  }
}

void stress_pool_model() {
  for (const std::string& name : native_policies()) {
    const Layout holes{.holes = HoleRule{.budget = 2, .step = 0.5f}};
    for (const Layout& layout : {Layout{}, holes, Layout{.windows = {0, 2}}}) {
      for (const std::uint32_t blocks : {1u, 6u, 60u}) {
        const std::string label = std::to_string(layout.windows.size()) + " groups, " + std::to_string(blocks) +
                                  " blocks" + (layout.holes ? ", holes filled" : "");
        run_case("pool model, " + name + ", " + label, [&](std::uint64_t seed) {
          ModelTraffic traffic(name, blocks, layout, seed);
          for (int step = 0; step < 6000; ++step) {
            traffic.step();
            traffic.check();
          }
        });
      }
    }
  }
}

// After a failure the order is that of release, also of what came before it.
void fall_back_is_lru() {
  run_case("the fall-back is LRU", [](std::uint64_t) {
    class Nothing final : public Residency {
      Key key(Slot slot) override { return slot + 1; }
      bool duplicated(Slot) override { return false; }
    } contents;
    FreeQueue queue(std::make_unique<BadPolicy>(6, Fault::kThrowsInVictim, 0), FreeQueue::Order::kLive);
    for (const Slot slot : {3u, 0u, 5u, 1u}) queue.push(slot, slot + 1, BlockInfo{}, false);
    queue.take(0);
    queue.push(0, 1, BlockInfo{}, false);
    require(queue.pop(contents) == 3, "not the one released first");
    require(!queue.failure().empty(), "the failure was not noted");
    queue.push(2, 3, BlockInfo{}, false);
    for (const Slot slot : {5u, 1u, 0u, 2u}) require(queue.pop(contents) == slot, "not in the order of release");
    require(queue.size() == 0, "a block too many");
  });
}

}  // namespace
}  // namespace eviction

int main(int argc, char** argv) {
  if (argc > 1) eviction::g_seed = std::strtoull(argv[1], nullptr, 10);
  eviction::run_case("key index", eviction::stress_key_index);
  eviction::run_case("ghost lists", eviction::stress_ghost_lists);
  eviction::run_case("place list", eviction::stress_place_list);
  eviction::fall_back_is_lru();
  eviction::stress_bad_policies();
  eviction::stress_every_policy();
  eviction::stress_pool_model();
  eviction::run_case("shadows on a thread", eviction::stress_shadows);
  eviction::run_case("shadows that cannot keep up", eviction::overflow_shadows);
  std::puts("all ok");
}
