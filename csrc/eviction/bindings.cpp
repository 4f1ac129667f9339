// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
//
// The module vllm._eviction_C. Nothing is decided here.

#include "bindings.h"

#include <optional>
#include <tuple>

#include "hand_over.h"
#include "live_queue.h"
#include "policies/catalogue.h"
#include "python_policy.h"

namespace eviction {
PlainSnapshot to_plain(const Snapshot& snapshot) {
  PlainEntries entries;
  for (const auto& entry : snapshot.entries) entries.emplace_back(entry.key, entry.queue, entry.value);
  return {std::move(entries), snapshot.ghosts, snapshot.scalars};
}

std::vector<Key> keys_in_order(const Policy& policy) {
  std::vector<Key> keys;
  for (const Slot slot : policy.peek(policy.size())) keys.push_back(policy.key_of(slot));
  return keys;
}

namespace {

Snapshot from_plain(const PlainSnapshot& plain) {
  Snapshot snapshot;
  for (const auto& [key, queue, value] : std::get<0>(plain)) snapshot.entries.push_back({key, queue, value});
  snapshot.ghosts = std::get<1>(plain);
  snapshot.scalars = std::get<2>(plain);
  return snapshot;
}

std::vector<Slot> to_slots(const std::vector<std::optional<Slot>>& slots) {
  std::vector<Slot> out;
  for (const auto& slot : slots) out.push_back(slot.value_or(kNoSlot));
  return out;
}

// The core does not look whether a slot exists; from Python a wrong number must not
// write outside of an array.
Slot existing(const Policy& policy, Slot slot) {
  if (slot >= policy.num_slots()) throw nb::index_error("no such slot");
  return slot;
}

// What a free queue does in slices, on a policy without a queue.
void adopt(Policy& policy, const std::vector<std::pair<Slot, Key>>& evictable,
           const std::vector<std::pair<Slot, Key>>& held, const Snapshot& snapshot) {
  std::vector<Resident> residents;
  std::vector<bool> is_evictable(policy.num_slots(), false);
  for (const auto& [slot, key] : evictable) {
    residents.push_back({slot, key, residents.size(), true});
    is_evictable.at(slot) = true;
  }
  for (const auto& [slot, key] : held) residents.push_back({existing(policy, slot), key, residents.size(), false});
  const HandOverPlan plan = plan_hand_over(nullptr, snapshot, std::move(residents));
  policy.adopt_history(snapshot);
  for (const HandOverPlan::Item& item : plan.items) {
    if (item.known) {
      policy.place(item.slot, item.entry, is_evictable.at(item.slot));
    } else {
      policy.disown(item.entry.key);
      policy.insert(item.slot, item.entry.key, BlockInfo{});
    }
  }
}

nb::dict traits_of(const Policy& policy) {
  const Traits traits = policy.traits();
  nb::dict out;
  out["prefix_safe"] = traits.prefix_safe;
  out["needs_structure"] = traits.needs_structure;
  out["needs_cost"] = traits.needs_cost;
  out["offline"] = traits.offline;
  out["moves_on_hit"] = traits.moves_on_hit;
  out["fills_holes"] = traits.fills_holes;
  return out;
}

void bind_policy(nb::module_& module) {
  nb::class_<RecomputeCost>(module, "RecomputeCost",
                            "What a block costs to recompute by its depth, in units of one at depth zero.")
      .def(
          "__init__",
          [](RecomputeCost* self, float per_token, float per_window_token, std::uint32_t window) {
            new (self) RecomputeCost{per_token, per_window_token, window};
          },
          "per_token"_a = 0.0f, "per_window_token"_a = 0.0f, "window"_a = 0)
      .def("__call__", &RecomputeCost::operator(), "depth"_a)
      .def("of_prefix", &RecomputeCost::of_prefix, "blocks"_a, "block_size"_a,
           "Of the first blocks of a prompt together.");

  nb::class_<Policy>(module, "Policy", "One eviction policy with its order of blocks; see csrc/eviction/policy.h.")
      .def_prop_ro("num_slots", &Policy::num_slots)
      .def_prop_ro("traits", &traits_of)
      .def_prop_ro("num_ghosts", &Policy::num_ghosts)
      .def_prop_ro("ghost_limit", &Policy::ghost_limit)
      .def_prop_ro("ghost_hits", &Policy::ghost_hits)
      .def_prop_ro("bytes", &Policy::bytes)
      .def("__len__", &Policy::size)
      .def(
          "key_of", [](const Policy& policy, Slot slot) { return policy.key_of(existing(policy, slot)); }, "slot"_a)
      .def(
          "insert",
          [](Policy& policy, Slot slot, Key key, std::uint32_t depth, Key parent, float cost, Serial serial) {
            policy.insert(existing(policy, slot), key, {depth, parent, cost, serial});
          },
          "slot"_a, "key"_a, "depth"_a = 0, "parent"_a = kNoKey, "cost"_a = 1.0f, "serial"_a = 0)
      .def(
          "reinsert", [](Policy& policy, Slot slot) { policy.reinsert(existing(policy, slot)); }, "slot"_a)
      .def(
          "take", [](Policy& policy, Slot slot) { policy.take(existing(policy, slot)); }, "slot"_a)
      .def("victim",
           [](Policy& policy) -> std::optional<Slot> {
             const Slot slot = policy.victim().slot;
             return slot == kNoSlot ? std::nullopt : std::optional(slot);
           })
      .def(
          "forget", [](Policy& policy, Slot slot) { policy.forget(existing(policy, slot)); }, "slot"_a)
      .def("disown", &Policy::disown, "key"_a)
      .def("peek", &Policy::peek, "n"_a)
      .def("clear", &Policy::clear)
      .def("model", &Policy::model, "What it has learnt, for `load_model`; empty when it learns nothing.")
      .def(
          "load_model", [](Policy& policy, const std::vector<double>& model) { return policy.load_model(model); },
          "model"_a)
      .def("report", &Policy::report, "What it has learnt, as rows of numbers by name.")
      .def("check", &Policy::check)
      .def("snapshot", [](const Policy& policy) { return to_plain(policy.snapshot()); })
      .def(
          "adopt",
          [](Policy& policy, const std::vector<std::pair<Slot, Key>>& evictable,
             const std::vector<std::pair<Slot, Key>>& held,
             const PlainSnapshot& plain) { adopt(policy, evictable, held, from_plain(plain)); },
          "evictable"_a, "held"_a, "snapshot"_a,
          "Take over an order: pairs of slot and key, evictable ones in the order in which they would have gone.")
      .def(
          "admit",
          [](Policy& policy, Serial serial, const std::vector<Key>& keys, const std::vector<std::optional<Slot>>& slots,
             double now, std::size_t first_group) {
            if (keys.size() != slots.size()) throw std::invalid_argument("admit: a slot or None for each key");
            for (const auto& slot : slots) existing(policy, slot.value_or(0));
            policy.admit({serial, keys, to_slots(slots), now, first_group});
          },
          "serial"_a, "keys"_a, "slots"_a, "now"_a, "first_group"_a = 0)
      .def(
          "finish",
          [](Policy& policy, Serial serial, const std::vector<Key>& cached, double now) {
            policy.finish(serial, cached, now);
          },
          "serial"_a, "cached_keys"_a, "now"_a)
      .def("advance", &Policy::advance, "now"_a);

  module.def("native_policies", &native_policies, "Names of the policies in C++, sorted.");
  module.def("make_policy", &make_policy, "name"_a, "num_slots"_a, "parameters"_a = Parameters{});
  module.def(
      "wrap_policy",
      [](nb::object policy, std::uint32_t num_slots) -> std::unique_ptr<Policy> {
        return std::make_unique<PythonPolicy>(std::move(policy), num_slots);
      },
      "policy"_a, "num_slots"_a, "A policy written in Python behind the same interface.");
}

int traverse_queue(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  return nb::inst_ready(self) ? nb::inst_ptr<LiveQueue>(self)->traverse(visit, arg) : 0;
}
int clear_queue(PyObject* self) {
  nb::inst_ptr<LiveQueue>(self)->clear();
  return 0;
}
PyType_Slot queue_slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(&traverse_queue)},
                             {Py_tp_clear, reinterpret_cast<void*>(&clear_queue)},
                             {0, nullptr}};

void bind_queue(nb::module_& module) {
  nb::class_<LiveQueue>(module, "LiveQueue", nb::type_slots(queue_slots),
                        "vLLM's free-queue interface over a policy; see csrc/eviction/live_queue.h.")
      .def(nb::init<nb::list, nb::object, std::unique_ptr<Policy>, bool, RecomputeCost>(), "blocks"_a, "block_pool"_a,
           "policy"_a, "follow_upstream"_a = false, "cost"_a = RecomputeCost{})
      .def_rw("num_free_blocks", &LiveQueue::num_free_blocks)
      .def("popleft", &LiveQueue::popleft)
      .def("popleft_n", &LiveQueue::popleft_n, "n"_a)
      .def("remove", &LiveQueue::remove, "block"_a)
      .def("append", &LiveQueue::append, "block"_a)
      .def("append_n", &LiveQueue::append_n, "blocks"_a)
      .def("prepend_n", &LiveQueue::prepend_n, "blocks"_a)
      .def("peek", &LiveQueue::peek, "n"_a)
      .def("fill", &LiveQueue::fill, "blocks"_a)
      .def(
          "attach", [](LiveQueue& live, ShadowHost* shadows) { live.attach(shadows); }, "shadows"_a.none(),
          nb::keep_alive<1, 2>())
      .def("admit", &LiveQueue::admit, "serial"_a, "groups"_a, "prompt_tokens"_a, "num_blocks"_a, "now"_a,
           "runs"_a = nb::list())
      .def("grow", &LiveQueue::grow, "serial"_a, "num_blocks"_a)
      .def("finish", &LiveQueue::finish, "serial"_a, "groups"_a, "now"_a)
      .def("advance", &LiveQueue::advance, "now"_a)
      .def("sync", &LiveQueue::sync)
      .def("copy_residents", &LiveQueue::copy_residents, "first"_a, "count"_a)
      .def("ask_for_plan", &LiveQueue::ask_for_plan, "candidate"_a)
      .def("begin_hand_over", &LiveQueue::begin_hand_over)
      .def("continue_hand_over", &LiveQueue::continue_hand_over, "budget"_a)
      .def("abandon_hand_over", &LiveQueue::abandon_hand_over)
      .def_prop_ro("handing_over", [](LiveQueue& live) { return live.queue().handing_over(); })
      .def("use_lru", &LiveQueue::use_lru, "why"_a)
      .def("__len__", [](LiveQueue& live) { return live.queue().size(); })
      .def("__contains__", &LiveQueue::contains, "block"_a)
      .def("check", &LiveQueue::check)
      .def("order", [](LiveQueue& live) { return keys_in_order(live.queue().policy()); })
      .def("snapshot", [](LiveQueue& live) { return to_plain(live.queue().policy().snapshot()); })
      .def("model", [](LiveQueue& live) { return live.queue().policy().model(); })
      .def(
          "load_model",
          [](LiveQueue& live, const std::vector<double>& model) { return live.queue().policy().load_model(model); },
          "model"_a)
      .def("report", [](LiveQueue& live) { return live.queue().policy().report(); })
      .def_prop_ro("bytes", [](LiveQueue& live) { return live.queue().bytes(); })
      .def_prop_ro("saved", &LiveQueue::saved)
      .def_prop_ro("evictions", [](LiveQueue& live) { return live.queue().evictions(); })
      .def_prop_ro("ghost_hits", [](LiveQueue& live) { return live.queue().ghost_hits(); })
      .def_prop_ro("num_ghosts", [](LiveQueue& live) { return live.queue().policy().num_ghosts(); })
      .def_prop_ro("ghost_limit", [](LiveQueue& live) { return live.queue().policy().ghost_limit(); })
      .def_prop_ro("observes_finish", [](LiveQueue& live) { return live.queue().policy().traits().needs_structure; })
      .def_prop_ro("fills_holes", [](LiveQueue& live) { return live.queue().policy().traits().fills_holes; })
      .def_prop_ro("failure", [](LiveQueue& live) { return live.queue().failure(); });
}

}  // namespace
}  // namespace eviction

NB_MODULE(_eviction_C, module) {
  module.doc() = "The C++ core of the eviction subsystem.";
  // A server that exits with its engine alive leaks nothing that matters.
  nanobind::set_leak_warnings(false);
  eviction::bind_policy(module);
  eviction::bind_holes(module);
  eviction::bind_shadow_host(module);
  eviction::bind_queue(module);
  eviction::bind_offline(module);
  eviction::bind_gittins(module);
}
