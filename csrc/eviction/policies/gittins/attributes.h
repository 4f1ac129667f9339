// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
//
// What is known of a block from the requests that used it, in four bytes: a pool has
// many blocks and few segments, so a block must be small. Counts saturate where the
// model's classes end; the usual gap between release and reuse is kept as a logarithm
// in fixed point, so that one word holds all and a hand-over can pass it on exactly.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

namespace eviction::gittins {

struct Attributes {
  std::uint16_t gap = 0;      // ln of seconds, from 1; 0 before the first reuse
  std::uint8_t uses = 1;      // requests that used the block, and those before it in the session
  std::uint8_t branches = 0;  // requests that left the path at or below it

  bool paced() const { return gap != 0; }
  float log_gap() const { return static_cast<float>(gap) / kUnit - kOffset; }
  // Of a block in use the gap is `kInUse`.
  static std::uint16_t gap_of(double seconds) {
    const double scaled = (std::log(std::max(kInUse, seconds)) + kOffset) * kUnit;
    return static_cast<std::uint16_t>(std::min(65535.0, scaled));
  }
  static constexpr double kInUse = 0.1;

  // Another request uses the block; `continues` the session, or leaves its path.
  Attributes used_after(std::uint16_t new_gap, bool continues) const {
    Attributes out = *this;
    out.gap = paced() ? static_cast<std::uint16_t>((std::uint32_t{gap} + new_gap) / 2) : new_gap;
    if (out.uses < 255) ++out.uses;
    if (!continues && out.branches < 255) ++out.branches;
    return out;
  }

  std::uint32_t bits() const { return std::bit_cast<std::uint32_t>(*this); }
  static Attributes from_bits(std::uint32_t bits) { return std::bit_cast<Attributes>(bits); }

  // Classes of the model.
  int uses_class() const {
    if (uses <= 3) return std::max<int>(uses, 1) - 1;
    return uses <= 5 ? 3 : uses <= 8 ? 4 : uses <= 16 ? 5 : uses <= 40 ? 6 : 7;
  }
  int branches_class() const {
    return branches <= 1 ? 0 : branches <= 2 ? 1 : branches <= 4 ? 2 : branches <= 16 ? 3 : 4;
  }
  int gap_class() const { return paced() ? octave_of_gap(log_gap()) : 0; }
  // 1 below a quarter of a second, 13 at a quarter of an hour and above.
  static int octave_of_gap(double log_gap) {
    return std::clamp(1 + static_cast<int>(std::floor(log_gap * 1.4426950408889634 + 3.0)), 1, 13);
  }
  // Alike blocks have the same features, so they can share a segment.
  bool alike(const Attributes& other) const {
    return bits() == other.bits() ||
           (uses_class() == other.uses_class() && gap_class() == other.gap_class() &&
            (branches > 0) == (other.branches > 0) && branches_class() == other.branches_class());
  }

 private:
  static constexpr float kUnit = 2048.0f;
  static constexpr float kOffset = 3.0f;
};
static_assert(sizeof(Attributes) == 4);

}  // namespace eviction::gittins
