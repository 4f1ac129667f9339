// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
//
// Numbers the blocks of a trace in order of first use. What is kept by block is then
// an array, and the blocks of one prefix are neighbours in it. Offline only.
#pragma once

#include <span>
#include <vector>

#include "key_index.h"

namespace eviction {

// Calls `take` with the number, from zero, of each key in turn. Returns how many
// different keys there are.
template <typename Take>
std::uint32_t number_keys(std::span<const Key> keys, Take take) {
  if (keys.size() >= KeyIndex::kAbsent) throw std::invalid_argument("a trace of 4 billion blocks or more");
  KeyIndex index(keys.size());
  std::vector<Key> names;
  const auto key_at = [&names](std::uint32_t number) { return names[number]; };
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (i + kAhead < keys.size()) index.prefetch(keys[i + kAhead]);
    const auto fresh = static_cast<std::uint32_t>(names.size());
    std::uint32_t number = index.insert_new(keys[i], fresh, key_at);
    if (number == KeyIndex::kAbsent) {
      number = fresh;
      names.push_back(keys[i]);
    }
    take(number);
  }
  return static_cast<std::uint32_t>(names.size());
}

}  // namespace eviction
