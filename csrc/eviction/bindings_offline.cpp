// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
//
// What runs on traces: the pool model, the unpinned cache, the simulator, the oracles.

#include <nanobind/ndarray.h>

#include "bindings.h"
#include "oracles/belady.h"
#include "oracles/belady_compute.h"
#include "oracles/infinite.h"
#include "simulator.h"
#include "trace_numbers.h"
#include "unpinned.h"

namespace eviction {
namespace {

template <typename T>
using Column = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// A copy of the values as a numpy array.
template <typename T>
nb::object to_numpy(const std::vector<T>& values) {
  auto* copy = new std::vector<T>(values);
  nb::capsule owner(copy, [](void* at) noexcept { delete static_cast<std::vector<T>*>(at); });
  return nb::cast(nb::ndarray<nb::numpy, T, nb::ndim<1>>(copy->data(), {copy->size()}, owner));
}

template <typename T>
std::span<const T> view(const Column<T>& column) {
  return {column.data(), column.size()};
}

// Keeps the trace's arrays alive for as long as the simulator looks at them.
struct Replay {
  Replay(Column<double> arrivals, Column<std::uint32_t> prompt_tokens, Column<std::uint32_t> output_tokens,
         Column<std::uint64_t> offsets, Column<Key> keys, std::uint32_t block_size, std::unique_ptr<Policy> policy,
         ServiceModel service, RecomputeCost cost, Key last_key, const std::optional<HoleRule>& holes)
      : arrivals(std::move(arrivals)),
        prompt_tokens(std::move(prompt_tokens)),
        output_tokens(std::move(output_tokens)),
        offsets(std::move(offsets)),
        keys(std::move(keys)),
        simulator(checked_view(last_key), block_size, std::move(policy), service, cost, holes) {}

  TraceView checked_view(Key last_key) const {
    const std::size_t n = arrivals.size();
    if (prompt_tokens.size() != n || output_tokens.size() != n || offsets.size() != n + 1 ||
        offsets.data()[n] > keys.size()) {
      throw std::invalid_argument("the columns of the trace do not fit together");
    }
    return {view(arrivals), view(prompt_tokens), view(output_tokens), view(offsets), view(keys), last_key};
  }

  Column<double> arrivals;
  Column<std::uint32_t> prompt_tokens;
  Column<std::uint32_t> output_tokens;
  Column<std::uint64_t> offsets;
  Column<Key> keys;
  Simulator simulator;
};

nb::dict counts_of(const Replay& replay) {
  const Simulator::Counts& counts = replay.simulator.counts();
  nb::dict out;
  out["requests"] = counts.requests;
  out["query_blocks"] = counts.query_blocks;
  out["hit_blocks"] = counts.hit_blocks;
  out["query_tokens"] = counts.query_tokens;
  out["hit_tokens"] = counts.hit_tokens;
  out["refused"] = counts.refused;
  out["waited"] = counts.waited;
  out["free_blocks"] = counts.free_blocks;
  out["saved"] = counts.saved;
  out["filled_holes"] = counts.filled_holes;
  out["filled_blocks"] = counts.filled_blocks;
  return out;
}

void bind_simulator(nb::module_& module) {
  nb::class_<ServiceModel>(module, "ServiceModel", "How long a request takes; see csrc/eviction/simulator.h.")
      .def(
          "__init__",
          [](ServiceModel* self, double base, double prefill_rate, double decode_seconds, std::size_t max_running) {
            new (self) ServiceModel{base, prefill_rate, decode_seconds, max_running};
          },
          "base"_a = 0.2, "prefill_rate"_a = 8000.0, "decode_seconds"_a = 0.02, "max_running"_a = 64)
      .def_ro("base", &ServiceModel::base)
      .def_ro("prefill_rate", &ServiceModel::prefill_rate)
      .def_ro("decode_seconds", &ServiceModel::decode_seconds)
      .def_ro("max_running", &ServiceModel::max_running);

  nb::class_<Replay>(module, "Simulator", "Replays a trace on the pool model; see csrc/eviction/simulator.h.")
      .def(nb::init<Column<double>, Column<std::uint32_t>, Column<std::uint32_t>, Column<std::uint64_t>, Column<Key>,
                    std::uint32_t, std::unique_ptr<Policy>, ServiceModel, RecomputeCost, Key,
                    const std::optional<HoleRule>&>(),
           "arrivals"_a, "prompt_tokens"_a, "output_tokens"_a, "offsets"_a, "keys"_a, "block_size"_a, "policy"_a,
           "service"_a = ServiceModel{}, "cost"_a = RecomputeCost{}, "last_key"_a = kNoKey, "holes"_a = nb::none())
      .def(
          "attach", [](Replay& replay, ShadowSet* shadows) { replay.simulator.attach(shadows); }, "shadows"_a.none(),
          nb::keep_alive<1, 2>(), "Feed these shadows from now on.")
      .def(
          "run_until",
          [](Replay& replay, double time) {
            nb::gil_scoped_release release;
            replay.simulator.run_until(time);
          },
          "time"_a, "Handle all events before `time` (seconds). Releases the GIL.")
      .def_prop_ro("done", [](const Replay& replay) { return replay.simulator.done(); })
      .def_prop_ro("next_time", [](const Replay& replay) { return replay.simulator.next_time(); })
      .def_prop_ro("counts", &counts_of)
      .def_prop_ro(
          "hits", [](const Replay& replay) { return to_numpy(replay.simulator.hits()); },
          "uint32 (requests,); blocks that each request hit. A copy.")
      .def_prop_ro(
          "holes", [](const Replay& replay) { return to_numpy(replay.simulator.holes()); },
          "uint32 (requests,); runs of full prompt blocks that each request computed. A copy.")
      .def_prop_ro("evictions", [](Replay& replay) { return replay.simulator.pool().queue().evictions(); })
      .def_prop_ro("ghost_hits", [](Replay& replay) { return replay.simulator.pool().queue().ghost_hits(); })
      .def_prop_ro("bytes", [](Replay& replay) { return replay.simulator.pool().bytes(); })
      .def(
          "hand_over",
          [](Replay& replay, ShadowSet& shadows, std::size_t candidate) {
            replay.simulator.hand_over(shadows, candidate);
          },
          "shadows"_a, "candidate"_a)
      .def("report", [](Replay& replay) { return replay.simulator.pool().queue().policy().report(); })
      .def("snapshot", [](Replay& replay) { return to_plain(replay.simulator.pool().queue().policy().snapshot()); })
      .def("check", [](Replay& replay) { replay.simulator.pool().check(); });
}

void bind_pool(nb::module_& module) {
  nb::class_<Pool>(module, "Pool", "vLLM's block pool without data; see csrc/eviction/pool.h.")
      .def(
          "__init__",
          [](Pool* self, std::unique_ptr<Policy> policy, const Windows& windows, std::uint32_t block_size,
             RecomputeCost cost, const std::optional<HoleRule>& holes) {
            new (self) Pool(std::move(policy), {windows, block_size, cost, holes});
          },
          "policy"_a, "windows"_a = Windows{0}, "block_size"_a = 1, "cost"_a = RecomputeCost{}, "holes"_a = nb::none())
      .def_prop_ro("num_blocks", &Pool::num_blocks)
      .def_prop_ro("num_free", &Pool::num_free)
      .def_prop_ro("bytes", &Pool::bytes)
      .def(
          "lookup",
          [](Pool& pool, const std::vector<Key>& keys, std::uint32_t limit) { return pool.lookup(keys, limit); },
          "keys"_a, "limit"_a)
      .def(
          "admit",
          [](Pool& pool, Serial serial, const std::vector<Key>& keys, std::uint32_t limit, std::uint32_t num_blocks,
             double now) {
            const Pool::Admitted admitted = pool.admit(serial, keys, limit, num_blocks, now);
            return std::tuple(admitted.hits, admitted.fits, admitted.holes, admitted.hole_blocks, admitted.saved);
          },
          "serial"_a, "keys"_a, "limit"_a, "num_blocks"_a, "now"_a,
          "Return (hits, whether it fits, holes before the last hit, blocks in them, cost of the hits).")
      .def(
          "grow",
          [](Pool& pool, Serial serial, std::uint32_t num_blocks, const std::vector<Key>& keys) {
            pool.grow(serial, num_blocks, keys);
          },
          "serial"_a, "num_blocks"_a, "keys"_a = std::vector<Key>{})
      .def(
          "finish",
          [](Pool& pool, Serial serial, const std::vector<Key>& keys, double now) { pool.finish(serial, keys, now); },
          "serial"_a, "keys"_a, "now"_a)
      .def("reset", &Pool::reset)
      .def("check", &Pool::check);
}

void bind_shadow_set(nb::module_& module) {
  nb::class_<ShadowSet>(module, "ShadowSet", "A pool for each candidate; see csrc/eviction/shadow_set.h.")
      .def(
          "__init__",
          [](ShadowSet* self, std::uint32_t num_blocks, std::uint32_t block_size,
             const std::vector<std::pair<std::string, Parameters>>& candidates, const Windows& windows,
             RecomputeCost cost, const std::optional<HoleRule>& holes) {
            std::vector<Candidate> plain;
            for (const auto& [name, parameters] : candidates) plain.push_back({name, parameters});
            new (self) ShadowSet(num_blocks, block_size, std::move(plain), windows, cost, holes);
          },
          "num_blocks"_a, "block_size"_a, "candidates"_a, "windows"_a = Windows{0}, "cost"_a = RecomputeCost{},
          "holes"_a = nb::none())
      .def("number_keys", &ShadowSet::number_keys, "last_key"_a, "All keys are numbers up to this one.")
      .def_prop_ro("query_tokens", [](ShadowSet& set) { return set.counts().query_tokens; })
      .def_prop_ro("hit_tokens", [](ShadowSet& set) { return set.counts().hit_tokens; })
      .def_prop_ro("query_cost", [](ShadowSet& set) { return set.counts().query_cost; })
      .def_prop_ro("saved", [](ShadowSet& set) { return set.counts().saved; })
      .def_prop_ro("requests", [](ShadowSet& set) { return set.counts().requests; })
      .def_prop_ro("bytes", &ShadowSet::bytes)
      .def("check", [](ShadowSet& set) {
        for (std::size_t i = 0; i < set.size(); ++i) set.pool(i).check();
      });
}

template <typename Work>
auto without_gil(Work work) {
  nb::gil_scoped_release release;
  return work();
}

// The trace is numbered once for all capacities.
void bind_oracles(nb::module_& module) {
  const auto plain = [](const OracleCounts& counts) {
    return nb::make_tuple(counts.query_blocks, counts.hit_blocks, counts.evictions, to_numpy(counts.hits));
  };
  nb::class_<OracleTrace>(module, "OracleTrace", "What the oracles replay; see csrc/eviction/oracles.")
      .def(
          "__init__",
          [](OracleTrace* self, Column<std::uint32_t> prompt_tokens, Column<std::uint64_t> offsets, Column<Key> keys,
             std::uint32_t block_size, Key last_key) {
            if (offsets.size() != prompt_tokens.size() + 1 || offsets.data()[prompt_tokens.size()] > keys.size()) {
              throw std::invalid_argument("the columns of the trace do not fit together");
            }
            nb::gil_scoped_release release;
            new (self) OracleTrace({{}, view(prompt_tokens), {}, view(offsets), view(keys), last_key}, block_size);
          },
          "prompt_tokens"_a, "offsets"_a, "keys"_a, "block_size"_a, "last_key"_a = kNoKey)
      .def(
          "belady",
          [plain](const OracleTrace& trace, std::uint32_t capacity) {
            return plain(without_gil([&] { return Belady::replay(trace, capacity); }));
          },
          "capacity"_a, "Return (query blocks, hit blocks, evictions, hit blocks of each request).")
      .def(
          "belady_compute",
          [plain](const OracleTrace& trace, std::uint32_t capacity, std::uint32_t block_size, RecomputeCost cost) {
            const auto counts = without_gil([&] { return BeladyCompute::replay(trace, capacity, block_size, cost); });
            return plain(counts) + nb::make_tuple(counts.saved, counts.holes, counts.hole_blocks);
          },
          "capacity"_a, "block_size"_a, "cost"_a,
          "Return (query blocks, hit blocks, evictions, hit blocks of each request, cost of the hits, holes, blocks in "
          "holes).")
      .def(
          "infinite",
          [plain](const OracleTrace& trace) { return plain(without_gil([&] { return replay_infinite(trace); })); },
          "Return (query blocks, hit blocks, evictions, hit blocks of each request).");
}

}  // namespace

void bind_offline(nb::module_& module) {
  bind_pool(module);
  bind_shadow_set(module);
  bind_simulator(module);
  bind_oracles(module);
  module.def(
      "number_keys",
      [](Column<Key> keys, nb::ndarray<Key, nb::ndim<1>, nb::c_contig, nb::device::cpu> numbers) {
        if (numbers.size() != keys.size()) throw std::invalid_argument("number_keys: a place for each key");
        nb::gil_scoped_release release;
        Key* next = numbers.data();
        return number_keys(view(keys), [&next](std::uint32_t number) { *next++ = Key{number} + 1; });
      },
      "keys"_a, "numbers"_a, "Number keys from 1 in order of first use; return how many there are.");
  module.def(
      "unpinned_hits",
      [](Column<Key> keys, std::unique_ptr<Policy> policy) {
        nb::gil_scoped_release release;
        UnpinnedCache cache(std::move(policy));
        std::uint64_t hits = 0;
        for (const Key key : view(keys)) hits += cache.access(key);
        return hits;
      },
      "keys"_a, "policy"_a, "Hits of a plain cache with as many entries as the policy has slots, key by key.");
}

}  // namespace eviction
