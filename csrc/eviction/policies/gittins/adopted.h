// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
//
// What `gittins` keeps of a snapshot while its blocks are being placed, one by one and
// perhaps between other events.
#pragma once

#include <unordered_map>
#include <vector>

#include "../gittins.h"

namespace eviction {

struct Gittins::Adopted {
  bool placing = false;      // what the snapshot does not know has come already, and is in the spill
  std::vector<Id> segments;  // by their numbers in the snapshot; kNone where there was no room
  // Of blocks whose parent is not the next in their segment; kNoKey where there is none.
  std::unordered_map<Key, Key> parents;
  std::unordered_map<Key, Slot> placed;                // those parents, once they are there
  std::unordered_map<Key, std::vector<Slot>> waiting;  // and their children until then
};

}  // namespace eviction
