// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
//
// The shadows that run beside a live engine.

#include "bindings.h"
#include "shadow_host.h"

namespace eviction {

void bind_shadow_host(nb::module_& module) {
  nb::class_<ShadowHost>(module, "ShadowHost", "Shadows on a thread of their own; see csrc/eviction/shadow_host.h.")
      .def(
          "__init__",
          [](ShadowHost* self, std::uint32_t num_blocks, std::uint32_t block_size,
             const std::vector<std::pair<std::string, Parameters>>& candidates, const Windows& windows, bool threaded,
             bool record_window, std::size_t max_pending_words, RecomputeCost cost,
             const std::optional<HoleRule>& holes) {
            std::vector<Candidate> plain;
            for (const auto& [name, parameters] : candidates) plain.push_back({name, parameters});
            new (self) ShadowHost(num_blocks, block_size, std::move(plain), windows,
                                  {threaded, record_window, max_pending_words}, cost, holes);
          },
          "num_blocks"_a, "block_size"_a, "candidates"_a, "windows"_a = Windows{0}, "threaded"_a = true,
          "record_window"_a = false, "max_pending_words"_a = ShadowHost::Options{}.max_pending_words,
          "cost"_a = RecomputeCost{}, "holes"_a = nb::none())
      .def(
          "admit",
          [](ShadowHost& host, Serial serial, const std::vector<Key>& keys, std::uint32_t prompt_tokens,
             std::uint32_t num_blocks, double now) { host.admit(serial, keys, prompt_tokens, num_blocks, now); },
          "serial"_a, "keys"_a, "prompt_tokens"_a, "num_blocks"_a, "now"_a)
      .def("grow", &ShadowHost::grow, "serial"_a, "num_blocks"_a)
      .def(
          "finish",
          [](ShadowHost& host, Serial serial, const std::vector<Key>& keys, double now) {
            host.finish(serial, keys, now);
          },
          "serial"_a, "keys"_a, "now"_a)
      .def("advance", &ShadowHost::advance, "now"_a)
      .def("reset", &ShadowHost::reset)
      .def("mark", &ShadowHost::mark, "replay_blocks"_a = 0)
      .def(
          "poll_answer",
          [](ShadowHost& host) -> nb::object {
            const auto answer = host.poll_answer();
            if (!answer.has_value()) return nb::none();
            return nb::make_tuple(answer->mark, answer->query_tokens, answer->hit_tokens, answer->query_cost,
                                  answer->saved);
          },
          "Return (mark, query tokens, hit tokens of each candidate, cost of all full prompt blocks, cost of the hits "
          "of each candidate), or None while it is not there.")
      .def("model", &ShadowHost::model, "candidate"_a,
           "What a candidate has learnt, as of the last answer to `mark`; empty when it learns nothing.")
      .def(
          "load_model",
          [](ShadowHost& host, std::size_t candidate, const std::vector<double>& model) {
            return host.load_model(candidate, model);
          },
          "candidate"_a, "model"_a, "Give it what an earlier run learnt, before the first event.")
      .def("drain", &ShadowHost::drain, nb::call_guard<nb::gil_scoped_release>())
      .def_prop_ro("failure", &ShadowHost::failure)
      .def_prop_ro("dropped", &ShadowHost::dropped)
      .def_prop_ro("busy_seconds", &ShadowHost::busy_seconds)
      .def_prop_ro("bytes", &ShadowHost::bytes)
      // For tests, when the thread has nothing to do.
      .def("check",
           [](ShadowHost& host) {
             for (std::size_t i = 0; i < host.shadows().size(); ++i) host.shadows().pool(i).check();
           })
      .def(
          "num_free", [](ShadowHost& host, std::size_t i) { return host.shadows().pool(i).num_free(); }, "candidate"_a)
      .def(
          "snapshot",
          [](ShadowHost& host, std::size_t i) { return to_plain(host.shadows().pool(i).queue().policy().snapshot()); },
          "candidate"_a)
      .def(
          "order",
          [](ShadowHost& host, std::size_t i) { return keys_in_order(host.shadows().pool(i).queue().policy()); },
          "candidate"_a);
}

}  // namespace eviction
