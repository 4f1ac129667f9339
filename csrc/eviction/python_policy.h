// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
//
// A policy written in Python behind the C++ interface. What Python raises comes
// out as an exception and makes the free queue fall back to LRU; what it returns
// is checked there. Keys and counts are kept here, so that a Python class only
// has to decide. It runs live and in the lab, never as a shadow: shadows run
// without the GIL.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/vector.h>

#include "policy.h"

namespace eviction {

namespace nb = nanobind;

class PythonPolicy final : public Policy {
 public:
  PythonPolicy(nb::object policy, std::uint32_t num_slots)
      : Policy(num_slots),
        policy_(std::move(policy)),
        block_info_(nb::module_::import_("vllm.v1.core.eviction.policy").attr("BlockInfo")),
        evictable_(num_slots, false) {}

  Traits traits() const override { return {.needs_structure = nb::hasattr(policy_, "finish")}; }
  std::size_t ghost_limit() const override { return nb::hasattr(policy_, "num_ghosts") ? num_slots() : 0; }
  std::uint32_t size() const override { return size_; }
  std::size_t num_ghosts() const override {
    return nb::hasattr(policy_, "num_ghosts") ? nb::cast<std::size_t>(policy_.attr("num_ghosts")()) : 0;
  }
  std::size_t bytes() const override { return base_bytes() + evictable_.size() / 8; }

  void insert(Slot slot, Key key, const BlockInfo& info) override {
    learn(slot, key);
    set(slot, true);
    ask("insert", slot, key, block_info_(info.depth, info.parent, info.cost, info.serial));
  }
  void reinsert(Slot slot) override {
    set(slot, true);
    ask("reinsert", slot);
  }
  void take(Slot slot) override {
    set(slot, false);
    ask("take", slot);
  }
  void forget(Slot slot) override {
    if (!knows(slot)) return;
    set(slot, false);
    unlearn(slot);
    ask("forget", slot);
  }
  void disown(Key key) override { ask_if_there("disown", key); }
  std::vector<Slot> peek(std::size_t n) const override { return answer<std::vector<Slot>>("peek", ask("peek", n)); }
  void clear() override {
    evictable_.assign(evictable_.size(), false);
    unlearn_all();
    size_ = 0;
    ask("clear");
  }
  void check() const override {
    std::uint32_t count = 0;
    for (const bool evictable : evictable_) count += evictable;
    require(count == size_, "python policy: wrong size");
    if (nb::hasattr(policy_, "check")) policy_.attr("check")();
  }
  void place(Slot, const Snapshot::Entry&, bool) override {
    throw std::logic_error("a Python policy cannot be handed over");
  }
  Snapshot snapshot() const override { throw std::logic_error("a Python policy cannot be handed over"); }

  void admit(const Admission& request) override {
    if (!nb::hasattr(policy_, "admit")) return;
    nb::list keys;
    nb::list slots;
    for (std::size_t i = 0; i < request.keys.size(); ++i) {
      keys.append(request.keys[i]);
      slots.append(request.slots[i] == kNoSlot ? nb::none() : nb::object(nb::int_(request.slots[i])));
    }
    const nb::object ghosts = ask("admit", request.serial, keys, slots, request.now);
    if (!ghosts.is_none()) ghost_hits_ += answer<std::uint32_t>("admit", ghosts);
  }
  void finish(Serial serial, std::span<const Key> cached, double now) override {
    if (!nb::hasattr(policy_, "finish")) return;
    nb::list keys;
    for (const Key key : cached) keys.append(key);
    ask("finish", serial, keys, now);
  }
  void advance(double now) override { ask_if_there("advance", now); }

 protected:
  Slot choose() override {
    if (size_ == 0) return kNoSlot;
    const Slot slot = answer<Slot>("victim", ask("victim"));
    if (slot < num_slots() && evictable_[slot]) set(slot, false);
    return slot;
  }

 private:
  // Calls a method. What it raises makes the queue fall back; what is not its own,
  // such as Ctrl-C, is raised again once the queue has done its work.
  template <typename... Args>
  nb::object ask(const char* method, const Args&... args) const {
    try {
      return policy_.attr(method)(args...);
    } catch (nb::python_error& error) {
      if (!error.matches(PyExc_Exception)) raise_later(error.value());
      throw;
    }
  }
  template <typename... Args>
  void ask_if_there(const char* method, const Args&... args) const {
    if (nb::hasattr(policy_, method)) ask(method, args...);
  }
  static void raise_later(nb::handle exception) {
    const auto raise = [](void* saved) {
      const nb::object value = nb::steal(static_cast<PyObject*>(saved));
      PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(value.ptr())), value.ptr());
      return -1;
    };
    if (Py_AddPendingCall(raise, exception.inc_ref().ptr()) != 0) exception.dec_ref();
  }
  template <typename Answer>
  static Answer answer(const char* method, const nb::object& given) {
    Answer out;
    if (nb::try_cast(given, out)) return out;
    throw std::invalid_argument(std::string(method) + "() returned " + nb::repr(given).c_str());
  }
  void set(Slot slot, bool evictable) {
    size_ += static_cast<std::uint32_t>(evictable) - static_cast<std::uint32_t>(evictable_[slot]);
    evictable_[slot] = evictable;
  }

  nb::object policy_;
  nb::object block_info_;  // the class of that name
  std::vector<bool> evictable_;
  std::uint32_t size_ = 0;
};

}  // namespace eviction
