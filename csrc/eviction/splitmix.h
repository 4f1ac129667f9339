// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
//
// Draws that are a function of a seed and their number, and of nothing else: a policy
// that draws keeps a counter, and can tell what it will draw next. SplitMix64: Steele,
// Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA'14.
#pragma once

#include <cstdint>

namespace eviction {

inline std::uint64_t split_mix_bits(std::uint64_t seed, std::uint64_t n) {
  std::uint64_t bits = seed + (n + 1) * 0x9e3779b97f4a7c15ull;
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9ull;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebull;
  return bits ^ (bits >> 31);
}

// In [0, 1).
inline double split_mix(std::uint64_t seed, std::uint64_t n) {
  return static_cast<double>(split_mix_bits(seed, n) >> 11) * 0x1p-53;
}

// In [0, bound).
inline std::uint32_t split_mix_below(std::uint64_t seed, std::uint64_t n, std::uint32_t bound) {
  return static_cast<std::uint32_t>((split_mix_bits(seed, n) >> 32) * bound >> 32);
}

}  // namespace eviction
