// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
//
// Finds the 32-bit position of a 64-bit key. The keys themselves stay with the
// owner, who passes a way to read them: the table holds a position and 32 bits
// of the key's hash, eight bytes an entry. Linear probing with backward-shift
// deletion, so that no tombstones pile up over days of serving. The capacity is
// fixed at construction: nothing is allocated, and nothing rehashes, on the
// scheduler's path.
//
// A trace's keys can be numbered from one in order of first use. Then the index is a
// plain table by key, several times faster: neighbours on a prefix are neighbours in
// memory.
#pragma once

#include <vector>

#include "types.h"

namespace eviction {

// What is looked up so many keys ahead is fetched now: most of the cost of a look-up is
// waiting for memory, and the waits of several go together.
inline constexpr std::size_t kAhead = 12;

class KeyIndex {
 public:
  static constexpr std::uint32_t kAbsent = 0xffffffffu;

  // Room for `capacity` keys at five eighths load: a look-up that fails probes four
  // cells, at three quarters it would be eight.
  explicit KeyIndex(std::size_t capacity)
      : cells_(capacity + capacity / 5 * 3 + 8, Cell{kAbsent, 0}), capacity_(capacity) {}

  std::size_t size() const { return size_; }
  std::size_t bytes() const { return cells_.size() * sizeof(Cell) + by_key_.size() * sizeof(by_key_[0]); }

  // All keys from now on are at most `last`. Of an empty index.
  void number_keys(Key last) {
    require(size_ == 0, "key index: keys are numbered before the first is inserted");
    cells_ = {};
    by_key_.assign(last + 1, kAbsent);
  }

  // `key_at(position)` reads the owner's key. Returns kAbsent when not found.
  template <typename KeyAt>
  std::uint32_t find(Key key, KeyAt key_at) const {
    if (numbered()) return by_key_[key];
    const std::size_t cell = locate(key, key_at);
    return cell == kNowhere ? kAbsent : cells_[cell].position;
  }

  // Fetches what a look-up of the key will read. Misses of the processor's caches
  // are most of its cost, and those of several keys go together.
  void prefetch(Key key) const {
    if (!numbered()) __builtin_prefetch(&cells_[home(tag_of(key))]);
  }

  // The key must not be present.
  void insert(Key key, std::uint32_t position) {
    require(size_ < capacity_, "key index: full");
    if (numbered()) {
      by_key_[key] = position;
      ++size_;
      return;
    }
    const std::uint32_t tag = tag_of(key);
    std::size_t cell = home(tag);
    while (cells_[cell].position != kAbsent) cell = after(cell);
    cells_[cell] = Cell{position, tag};
    ++size_;
  }

  // Inserts the key, or returns the position that it has already; kAbsent when it was
  // not there.
  template <typename KeyAt>
  std::uint32_t insert_new(Key key, std::uint32_t position, KeyAt key_at) {
    if (numbered()) {
      if (by_key_[key] != kAbsent) return by_key_[key];
      insert(key, position);
      return kAbsent;
    }
    const std::uint32_t tag = tag_of(key);
    std::size_t cell = home(tag);
    for (; cells_[cell].position != kAbsent; cell = after(cell)) {
      if (cells_[cell].tag == tag && key_at(cells_[cell].position) == key) return cells_[cell].position;
    }
    require(size_ < capacity_, "key index: full");
    cells_[cell] = Cell{position, tag};
    ++size_;
    return kAbsent;
  }

  // Returns the position that the key had, or kAbsent.
  template <typename KeyAt>
  std::uint32_t erase(Key key, KeyAt key_at) {
    if (numbered()) {
      const std::uint32_t position = by_key_[key];
      if (position != kAbsent) erase_at(key, position);
      return position;
    }
    const std::size_t cell = locate(key, key_at);
    if (cell == kNowhere) return kAbsent;
    const std::uint32_t position = cells_[cell].position;
    close(cell);
    return position;
  }

  // The same when the key is at this position, else nothing: no key is read.
  bool erase_at(Key key, std::uint32_t position) {
    if (numbered()) {
      if (by_key_[key] != position) return false;
      by_key_[key] = kAbsent;
      --size_;
      return true;
    }
    for (std::size_t cell = home(tag_of(key)); cells_[cell].position != kAbsent; cell = after(cell)) {
      if (cells_[cell].position != position) continue;
      close(cell);
      return true;
    }
    return false;
  }

  void clear() {
    for (Cell& cell : cells_) cell.position = kAbsent;
    by_key_.assign(by_key_.size(), kAbsent);
    size_ = 0;
  }

 private:
  struct Cell {
    std::uint32_t position;
    std::uint32_t tag;
  };
  static constexpr std::size_t kNowhere = ~std::size_t{0};

  bool numbered() const { return !by_key_.empty(); }

  void close(std::size_t hole) {
    --size_;
    // Close the hole: move back each later entry of the run whose home does not
    // lie behind the hole.
    for (std::size_t cell = after(hole); cells_[cell].position != kAbsent; cell = after(cell)) {
      const std::size_t wish = home(cells_[cell].tag);
      const bool stays = hole <= cell ? (hole < wish && wish <= cell) : (hole < wish || wish <= cell);
      if (stays) continue;
      cells_[hole] = cells_[cell];
      hole = cell;
    }
    cells_[hole].position = kAbsent;
  }

  // Recorded keys are hashes already, but ids of a trace are small integers.
  static std::uint32_t tag_of(Key key) {
    key ^= key >> 32;
    return static_cast<std::uint32_t>((key * 0x9e3779b97f4a7c15ull) >> 32);
  }
  std::size_t home(std::uint32_t tag) const {
    return static_cast<std::size_t>((std::uint64_t{tag} * cells_.size()) >> 32);
  }
  std::size_t after(std::size_t cell) const { return cell + 1 == cells_.size() ? 0 : cell + 1; }

  template <typename KeyAt>
  std::size_t locate(Key key, KeyAt key_at) const {
    const std::uint32_t tag = tag_of(key);
    for (std::size_t cell = home(tag); cells_[cell].position != kAbsent; cell = after(cell)) {
      if (cells_[cell].tag == tag && key_at(cells_[cell].position) == key) return cell;
    }
    return kNowhere;
  }

  std::vector<Cell> cells_;
  std::vector<std::uint32_t> by_key_;  // instead of the cells, when keys are numbered
  std::size_t capacity_;
  std::size_t size_ = 0;
};

}  // namespace eviction
