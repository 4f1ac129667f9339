// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
//
// Makes a policy from its name and parameters. The names, their documentation
// and the checks of the parameters are the Python registry's; a test holds the
// two lists against each other.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "../policy.h"

namespace eviction {

using Parameters = std::map<std::string, double>;

std::vector<std::string> native_policies();

// Parameters that are left out have their defaults. Throws std::invalid_argument
// for an unknown name or parameter.
std::unique_ptr<Policy> make_policy(const std::string& name, std::uint32_t num_slots, const Parameters& parameters);

}  // namespace eviction
