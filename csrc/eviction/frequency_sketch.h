// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
//
// How often a key was used lately, resident or not, in a few bits: a count-min sketch
// (Cormode, Muthukrishnan, 2005) of 4-bit counters, four for each key, of which the
// lowest counts. After ten times as many uses as the cache has blocks all counters are
// halved, so that it follows the traffic (Einziger, Friedman, Manes, "TinyLFU", 2017).
// That takes a pass over the table, a few operations a block each ten uses of it.
#pragma once

#include <algorithm>
#include <bit>
#include <vector>

#include "types.h"

namespace eviction {

class FrequencySketch {
 public:
  explicit FrequencySketch(std::uint32_t num_blocks)
      : words_(std::bit_ceil(std::max<std::size_t>(64, num_blocks)), 0),
        period_(10 * std::uint64_t{std::max(1u, num_blocks)}) {}

  std::size_t bytes() const { return words_.size() * sizeof(words_[0]); }
  void prefetch(Key key) const {
    for (std::uint32_t row = 0; row < kRows; ++row) __builtin_prefetch(&words_[at(key, row).word]);
  }

  // At most 15.
  std::uint32_t count(Key key) const {
    std::uint32_t least = kMost;
    for (std::uint32_t row = 0; row < kRows; ++row) {
      const Counter counter = at(key, row);
      least = std::min(least, static_cast<std::uint32_t>(words_[counter.word] >> counter.shift) & kMost);
    }
    return least;
  }
  void add(Key key) {
    bool added = false;
    for (std::uint32_t row = 0; row < kRows; ++row) {
      const Counter counter = at(key, row);
      std::uint64_t& word = words_[counter.word];
      if ((word >> counter.shift & kMost) == kMost) continue;
      word += std::uint64_t{1} << counter.shift;
      added = true;
    }
    if (!added || ++uses_ < period_) return;
    for (std::uint64_t& word : words_) word = word >> 1 & 0x7777777777777777ull;
    uses_ /= 2;
  }
  void clear() {
    std::fill(words_.begin(), words_.end(), 0);
    uses_ = 0;
  }

  // As numbers of 32 bits, which a double holds.
  void save(std::vector<double>& out) const {
    out.push_back(static_cast<double>(uses_));
    for (const std::uint64_t word : words_) {
      out.push_back(static_cast<double>(word & 0xffffffffu));
      out.push_back(static_cast<double>(word >> 32));
    }
  }
  void load(const double* in) {
    uses_ = static_cast<std::uint64_t>(*in++);
    for (std::uint64_t& word : words_) {
      word = static_cast<std::uint64_t>(*in++);
      word |= static_cast<std::uint64_t>(*in++) << 32;
    }
  }

 private:
  static constexpr std::uint32_t kRows = 4;
  static constexpr std::uint32_t kMost = 15;
  struct Counter {
    std::size_t word;
    std::uint32_t shift;
  };

  // Each row has four of the sixteen counters of a word.
  Counter at(Key key, std::uint32_t row) const {
    const std::uint64_t hash = (key ^ key >> 32) * (0x9e3779b97f4a7c15ull + 2 * row) + row;
    const std::uint64_t mixed = (hash ^ hash >> 29) * 0xbf58476d1ce4e5b9ull;
    return {(mixed >> 32) & (words_.size() - 1), 4 * (4 * row + static_cast<std::uint32_t>(mixed >> 30 & 3))};
  }

  std::vector<std::uint64_t> words_;
  std::uint64_t period_;
  std::uint64_t uses_ = 0;
};

}  // namespace eviction
