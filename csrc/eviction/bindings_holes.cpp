// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork

#include "bindings.h"
#include "holes.h"

namespace eviction {
namespace {

using Runs = std::vector<std::pair<std::uint32_t, std::uint32_t>>;

Runs runs_of(const HoleRule& rule, nb::bytes cached, std::uint32_t prefix, std::uint32_t length) {
  const char* const flags = cached.c_str();
  const auto limit = static_cast<std::uint32_t>(cached.size());
  if (limit > length || prefix > limit) throw std::invalid_argument("runs: more blocks cached than there are");
  Runs out;
  for (const BlockRun& run :
       runs_worth_keeping([flags](std::uint32_t i) { return flags[i] != 0; }, prefix, limit, length, rule)) {
    out.emplace_back(run.first, run.end);
  }
  return out;
}

}  // namespace

void bind_holes(nb::module_& module) {
  nb::class_<HoleRule>(module, "HoleRule", "Which cached runs behind a hole are worth it; see csrc/eviction/holes.h.")
      .def(
          "__init__",
          [](HoleRule* self, const RecomputeCost& cost, std::uint32_t block_size, std::uint32_t budget, float step) {
            if (block_size == 0 || budget == 0) throw std::invalid_argument("HoleRule: nothing fits in a step");
            new (self) HoleRule{cost, block_size, budget, step};
          },
          "cost"_a, "block_size"_a, "budget"_a, "step"_a)
      .def_static(
          "of_tokens",
          [](const RecomputeCost& cost, std::uint32_t block_size, std::uint32_t budget, float step) {
            if (block_size == 0) throw std::invalid_argument("HoleRule: nothing fits in a step");
            return HoleRule::of_tokens(cost, block_size, budget, step);
          },
          "cost"_a, "block_size"_a, "budget"_a, "step"_a,
          "`budget`: tokens that a step of prefill computes. `step`: what a further one costs, in tokens at depth "
          "zero.")
      .def_ro("budget", &HoleRule::budget, "Blocks that a step of prefill computes at most.")
      .def("runs", &runs_of, "cached"_a, "prefix"_a, "length"_a,
           "Pairs of first block and end. `cached`: a byte for each block that may be reused, 0 where it is not "
           "cached. `prefix`: blocks of the cached prefix. `length`: blocks of the prompt.");
}

}  // namespace eviction
