// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
//
// The structures below the policies against those of the standard library. They are
// kept full and small, so that probes wrap round and numbers run out all the time.
#pragma once

#include <algorithm>
#include <list>
#include <map>
#include <random>
#include <vector>

#include "ghost_list.h"
#include "key_index.h"
#include "place_list.h"

namespace eviction {

inline void stress_key_index(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  for (const std::size_t capacity : {std::size_t{0}, std::size_t{1}, std::size_t{2}, std::size_t{50}}) {
    KeyIndex index(capacity);
    std::map<Key, std::uint32_t> model;
    std::vector<Key> keys(capacity, kNoKey);  // by position
    const auto key_at = [&](std::uint32_t position) { return keys[position]; };
    for (int step = 0; step < 40000; ++step) {
      // Small numbers, and such that differ in their upper half only.
      const Key key = random() % 2 ? 1 + random() % (2 * capacity + 2) : (1 + random() % (capacity + 1)) << 40;
      const auto found = model.find(key);
      if (found != model.end()) {
        require(index.find(key, key_at) == found->second, "key index: lost a key");
        if (random() % 3 == 0) {
          require(index.erase(key, key_at) == found->second, "key index: erased another");
          keys[found->second] = kNoKey;
          model.erase(found);
        }
      } else {
        require(index.find(key, key_at) == KeyIndex::kAbsent, "key index: found what is not there");
        require(index.erase(key, key_at) == KeyIndex::kAbsent, "key index: erased what is not there");
        if (model.size() < capacity) {
          const auto position = static_cast<std::uint32_t>(std::find(keys.begin(), keys.end(), kNoKey) - keys.begin());
          keys[position] = key;
          index.insert(key, position);
          model.emplace(key, position);
        }
      }
      require(index.size() == model.size(), "key index: wrong size");
    }
    for (const auto& [key, position] : model) require(index.find(key, key_at) == position, "key index: lost a key");
  }
}

inline void stress_ghost_lists(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  GhostStore store(9);
  GhostList lists[2] = {{store, 1}, {store, 2}};
  std::list<Key> models[2];
  for (int step = 0; step < 60000; ++step) {
    const std::size_t at = random() % 2;
    const Key key = 1 + random() % 24;
    GhostList& list = lists[at];
    std::list<Key>& model = models[at];
    const bool there = std::find(model.begin(), model.end(), key) != model.end();
    require(list.contains(key) == there, "ghost list: another idea of what is there");
    switch (random() % 5) {
      case 0:
      case 1:
        if (lists[1 - at].contains(key)) break;
        if (!there && store.size() == store.capacity()) {
          GhostList& longer = lists[lists[0].size() < lists[1].size()];
          longer.trim_one();
          models[&longer - lists].pop_front();
        }
        require(list.renew(key) == there, "ghost list: renewed another");
        if (!there) list.add(key);
        require(!list.expected(key), "ghost list: expected as soon as it was added");
        model.remove(key);
        model.push_back(key);
        break;
      case 2:
        require(list.expect(key) == there && list.expected(key) == there, "ghost list: expected what is not there");
        if (there) {
          model.remove(key);
          model.push_back(key);
        }
        break;
      case 3:
        require(list.erase(key) == there, "ghost list: erased another");
        model.remove(key);
        break;
      default: {
        const std::size_t limit = random() % 12;
        list.trim(limit);
        while (model.size() > limit) model.pop_front();
      }
    }
    list.check();
    const std::vector<Key> keys = list.keys();
    require(std::equal(keys.begin(), keys.end(), model.begin(), model.end()), "ghost list: another order");
  }
}

inline void stress_place_list(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  for (const std::uint32_t slots : {1u, 2u, 5u, 200u}) {
    PlaceList places(slots);
    std::vector<Slot> model;  // in order of arrival
    std::vector<bool> present(slots, false);
    PlaceList::Place hand = 0;
    for (int step = 0; step < 20000; ++step) {
      const Slot slot = static_cast<Slot>(random() % slots);
      const auto at = std::find(model.begin(), model.end(), slot);
      if (at == model.end()) {
        places.arrive(slot, hand);
        model.push_back(slot);
        present[slot] = true;
      } else if (random() % 3 == 0) {
        places.leave(slot);
        model.erase(at);
        present[slot] = false;
      } else if (present[slot]) {
        places.step_out(slot);
        present[slot] = false;
      } else {
        places.step_in(slot);
        present[slot] = true;
      }
      if (step % (1 + static_cast<int>(slots) / 8) != 0) continue;
      places.check();
      std::vector<Slot> seen;
      for (auto place = places.from(0); place != PlaceList::kNoPlace; place = places.from(place + 1)) {
        seen.push_back(places.at(place));
      }
      std::vector<Slot> expected;
      for (const Slot known : model) {
        if (present[known]) expected.push_back(known);
      }
      require(seen == expected, "place list: another order");
    }
  }
}

}  // namespace eviction
