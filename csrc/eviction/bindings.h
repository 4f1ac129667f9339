// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
//
// The parts of the module, one function for each file that binds some.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include "policy.h"

namespace eviction {

namespace nb = nanobind;
using namespace nb::literals;

// A snapshot as Python sees it; each entry is a key, a queue and a value.
using PlainEntries = std::vector<std::tuple<Key, std::uint32_t, std::uint32_t>>;
using PlainSnapshot = std::tuple<PlainEntries, std::vector<std::vector<Key>>, std::vector<double>>;
PlainSnapshot to_plain(const Snapshot& snapshot);
// Of the evictable blocks, the next victim first.
std::vector<Key> keys_in_order(const Policy& policy);

void bind_gittins(nb::module_& module);
void bind_holes(nb::module_& module);
void bind_offline(nb::module_& module);
void bind_shadow_host(nb::module_& module);

}  // namespace eviction
