// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
//
// What `gittins` keeps of a snapshot while its blocks are being placed, one by one and
// perhaps between other events. It is made where no one waits, and of full size: nothing
// here grows while blocks are placed. For the same reason it goes piece by piece.
#pragma once

#include <unordered_map>
#include <vector>

#include "../gittins.h"

namespace eviction {

struct Gittins::Adopted {
  bool placing = false;      // what the snapshot does not know has come already, and is in the spill
  std::vector<Id> segments;  // by their numbers in the snapshot; kNone where there was no room
  std::size_t let_go = 0;    // of them, at the end
  // Of blocks whose parent is not the next in their segment; kNoKey where there is none.
  std::unordered_map<Key, Key> parents;
  struct Parent {
    Slot slot = kNoSlot;         // once it is there
    std::vector<Slot> children;  // that wait until then
  };
  std::unordered_map<Key, Parent> awaited;
};

}  // namespace eviction
