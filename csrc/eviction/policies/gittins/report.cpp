// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
//
// What `gittins` has learnt, for another run and for people.

#include <algorithm>
#include <cmath>

#include "../gittins.h"

namespace eviction {

using gittins::Attributes;

namespace {
// What a hazard is shown of: blocks as they are often met.
struct Example {
  const char* name;
  std::uint8_t uses;
  std::uint8_t branches;
  double gap;  // seconds; 0 before the first reuse
};
constexpr Example kExamples[] = {
    {"used once", 1, 0, 0.0},
    {"used 2 times, 4 s apart", 2, 0, 4.0},
    {"used 4 times, 4 s apart", 4, 0, 4.0},
    {"used 2 times, 60 s apart", 2, 0, 60.0},
    {"used 4 times, 60 s apart", 4, 0, 60.0},
    {"shared by 2, 60 s apart", 2, 2, 60.0},
    {"shared by many, 1 s apart", 100, 100, 1.0},
};
}  // namespace

std::vector<double> Gittins::model() const {
  std::vector<double> out;
  hazard_.save(out);
  return out;
}

bool Gittins::load_model(std::span<const double> model) {
  const bool fits = model.size() == gittins::HazardModel::saved_size() &&
                    std::all_of(model.begin(), model.end(), [](double value) { return std::isfinite(value); });
  if (fits) hazard_.load(model);
  return fits;
}

std::map<std::string, std::vector<double>> Gittins::report() const {
  std::map<std::string, std::vector<double>> out;
  const auto add = [&](const char* name, const gittins::CountsByAge& counts) {
    for (const std::uint64_t count : counts) out[name].push_back(static_cast<double>(count));
  };
  for (int bucket = 0; bucket < gittins::kBuckets; ++bucket) {
    out["age from, seconds"].push_back(hazard_.ages().edge(bucket));
  }
  add("hits", hits_);
  add("returns after eviction", ghost_returns_);
  add("evictions", evictions_);
  for (const Example& example : kExamples) {
    Attributes learnt;
    learnt.uses = example.uses;
    learnt.branches = example.branches;
    if (example.gap > 0.0) learnt.gap = Attributes::gap_of(example.gap);
    const gittins::Hazards hazards = hazard_.hazards(describe(learnt, false));
    out[std::string("hazard, ") + example.name].assign(hazards.begin(), hazards.end());
    std::vector<double>& index = out[std::string("index, ") + example.name];
    for (int bucket = 0; bucket < gittins::kBuckets; ++bucket) {
      const auto hazard_of = [&](int later) { return hazards[static_cast<std::size_t>(later)]; };
      index.push_back(gittins::gittins_index(hazard_of, hazard_.ages(), bucket));
    }
  }
  return out;
}

}  // namespace eviction
