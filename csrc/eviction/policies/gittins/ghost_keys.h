// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
//
// Evicted segments are remembered by a few of their keys. A request that asks for one of
// them had the same path up to it, so all blocks before it are known to return as well:
// a key for each would tell little more. With four keys to a segment as many keys as the
// pool has blocks remember eight pools and more, which is what the model needs to see
// returns that an LRU cache never sees.
//
// The keys that a request asked for are expected (ghost_list.h): they have left their
// segment, and wait for the block.
#pragma once

#include <vector>

#include "../../ghost_list.h"
#include "segments.h"

namespace eviction::gittins {

class GhostKeys {
 public:
  using Ghost = GhostStore::Ghost;

  explicit GhostKeys(std::uint32_t capacity) : store_(capacity), list_(store_, 0), of_(capacity, Place{kNone, 0}) {}

  std::size_t size() const { return store_.size(); }
  std::size_t capacity() const { return store_.capacity(); }
  bool full() const { return size() == capacity(); }
  std::size_t bytes() const { return store_.bytes() + of_.size() * sizeof(Place); }
  void number_keys(Key last) { store_.number_keys(last); }
  void prefetch(Key key) const { store_.prefetch(key); }

  Ghost find(Key key) const { return store_.find(key); }
  Ghost oldest() const { return list_.oldest(); }
  // kNone when it is expected.
  std::uint32_t segment(Ghost ghost) const { return of_[ghost.node].segment; }
  std::uint32_t place(Ghost ghost) const { return of_[ghost.node].place; }
  std::vector<Key> keys() const { return list_.keys(); }

  // There must be room, and the key must not be there.
  void add(Key key, std::uint32_t segment, std::uint32_t place) {
    list_.add(key);
    of_[list_.newest().node] = {segment, place};
  }
  void expect(Ghost ghost) {
    of_[ghost.node].segment = kNone;
    list_.expect(ghost);
  }
  void erase(Ghost ghost) { list_.erase(ghost); }
  void clear() { list_.clear(); }
  void check() const { list_.check(); }

  // Which blocks of a segment are remembered: counted from its end, which is evicted
  // first, and where the next turn of a session would leave the path if it changes
  // what came after the prompt.
  static bool keeps(const Segment& segment, std::uint32_t place, std::uint32_t from_end) {
    return from_end % segment.spacing == 0 || place + 1 == segment.prompt || place + 3 == segment.prompt;
  }

 private:
  struct Place {
    std::uint32_t segment;
    std::uint32_t place;
  };

  GhostStore store_;
  GhostList list_;
  std::vector<Place> of_;
};

}  // namespace eviction::gittins
