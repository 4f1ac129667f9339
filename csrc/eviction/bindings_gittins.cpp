// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
//
// The parts of `gittins`, for tests and for those who study what it learns.

#include "bindings.h"
#include "policies/gittins/age_timers.h"
#include "policies/gittins/eviction_heap.h"
#include "policies/gittins/ghost_keys.h"
#include "policies/gittins/gittins_index.h"
#include "policies/gittins/hazard_model.h"

namespace eviction {
namespace {

using gittins::Ages;
using gittins::AgeTimers;
using gittins::Covariates;
using gittins::EvictionHeap;
using gittins::HazardModel;
using gittins::Hazards;

// From Python a wrong number must not reach beyond an array.
int checked_bucket(int bucket) {
  if (bucket < 0 || bucket >= gittins::kBuckets) throw nb::index_error("no such bucket");
  return bucket;
}

Covariates covariates_of(const std::vector<int>& values, std::optional<float> log_gap, bool shared) {
  if (values.size() != gittins::kFeatures) throw std::invalid_argument("a value for each feature");
  Covariates x;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] < -1 || values[i] >= gittins::kValues) throw std::invalid_argument("no such value of a feature");
    x.values[i] = static_cast<std::int8_t>(values[i]);
  }
  x.paced = log_gap.has_value();
  x.log_gap = log_gap.value_or(0.0f);
  x.shared = shared;
  return x;
}

}  // namespace

void bind_gittins(nb::module_& parent) {
  nb::module_ module = parent.def_submodule("gittins", "Parts of the policy; see csrc/eviction/policies/gittins.");
  module.attr("NUM_BUCKETS") = gittins::kBuckets;
  module.attr("NUM_FEATURES") = gittins::kFeatures;
  module.attr("NUM_VALUES") = gittins::kValues;

  nb::class_<Covariates>(module, "Covariates")
      .def(
          "__init__",
          [](Covariates* self, const std::vector<int>& values, std::optional<float> log_gap, bool shared) {
            new (self) Covariates(covariates_of(values, log_gap, shared));
          },
          "values"_a, "log_gap"_a.none() = nb::none(), "shared"_a = false);

  nb::class_<HazardModel>(module, "HazardModel")
      .def(nb::init<>())
      .def(
          "hazard",
          [](const HazardModel& model, const Covariates& x, int bucket) {
            return model.hazard(x, checked_bucket(bucket));
          },
          "x"_a, "bucket"_a)
      .def(
          "hazards",
          [](const HazardModel& model, const Covariates& x) {
            const Hazards out = model.hazards(x);
            return std::vector<double>(out.begin(), out.end());
          },
          "x"_a)
      .def(
          "learn",
          [](HazardModel& model, const Covariates& x, int bucket, bool returned, double weight) {
            model.learn(x, checked_bucket(bucket), returned, weight);
          },
          "x"_a, "bucket"_a, "returned"_a, "weight"_a);

  module.def("bucket_of", [](double age) { return Ages().bucket(age); }, "seconds"_a);
  module.def(
      "gittins_index",
      [](const std::vector<double>& hazards, int from) {
        if (hazards.size() != gittins::kBuckets) throw std::invalid_argument("a hazard for each bucket");
        const auto hazard_of = [&](int bucket) { return hazards[static_cast<std::size_t>(bucket)]; };
        return gittins::gittins_index(hazard_of, Ages(), checked_bucket(from));
      },
      "hazards"_a, "from_bucket"_a = 0);

  nb::class_<AgeTimers>(module, "AgeTimers")
      .def(nb::init<std::uint32_t>(), "capacity"_a)
      .def("start", &AgeTimers::start, "id"_a, "edge"_a)
      .def("stop", &AgeTimers::stop, "id"_a)
      .def(
          "first",
          [](const AgeTimers& timers, int edge) -> std::optional<std::uint32_t> {
            const std::uint32_t id = timers.first(checked_bucket(edge));
            return id == AgeTimers::kNone ? std::nullopt : std::optional(id);
          },
          "edge"_a);

  nb::class_<EvictionHeap>(module, "EvictionHeap")
      .def(nb::init<std::uint32_t>(), "capacity"_a)
      .def(
          "set",
          [](EvictionHeap& heap, std::uint32_t id, bool blocked, float index, std::uint32_t ticket) {
            heap.set(id, {blocked, index, ticket});
          },
          "id"_a, "blocked"_a, "index"_a, "ticket"_a)
      .def("remove", &EvictionHeap::remove, "id"_a)
      .def("top",
           [](const EvictionHeap& heap) -> std::optional<std::uint32_t> {
             return heap.empty() ? std::nullopt : std::optional(heap.top());
           })
      .def("__len__", &EvictionHeap::size)
      .def("check", &EvictionHeap::check);
}

}  // namespace eviction
