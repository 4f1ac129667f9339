// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
//
// Slots in groups that come and go: the blocks of a session, or those that one request
// computed. A slot is in one group at most, evictable or in use; the evictable ones
// stand in the group's list. A group has a number, which is used again when the group
// is empty, and a name, which is not, so that a hand-over can tell it.
#pragma once

#include <unordered_map>
#include <vector>

#include "slot_list.h"
#include "types.h"

namespace eviction {

class SlotGroups {
 public:
  using Group = std::uint32_t;
  using Name = std::uint32_t;
  static constexpr Group kNone = 0xffffffffu;

  explicit SlotGroups(SlotLinks& links)
      : links_(&links),
        lists_(links.num_slots()),
        members_(links.num_slots(), 0),
        name_(links.num_slots(), 0),
        group_of_(links.num_slots(), kNone),
        queued_(links.num_slots(), 0) {
    clear();
  }

  std::uint32_t size() const { return size_; }  // evictable slots
  std::size_t bytes() const {
    return lists_.size() * (sizeof(lists_[0]) + sizeof(members_[0]) + sizeof(name_[0]) + sizeof(group_of_[0]) +
                            sizeof(queued_[0]) + sizeof(Group));
  }
  Group group_of(Slot slot) const { return group_of_[slot]; }
  bool queued(Slot slot) const { return queued_[slot]; }
  // The evictable slots; a copy, which does not change with them.
  SlotList operator[](Group group) const { return {*links_, lists_[group]}; }
  Name name(Group group) const { return name_[group]; }
  bool has_members(Group group) const { return members_[group] > 0; }

  // A group without members; it must get one before the next is opened.
  Group open() { return open(next_name_++); }
  // In a hand-over: the group that had this name there.
  Group named(Name name) {
    const auto found = adopted_.find(name);
    if (found != adopted_.end() && members_[found->second] > 0 && name_[found->second] == name) return found->second;
    return adopted_[name] = open(name);
  }
  Name next_name() const { return next_name_; }
  void set_next_name(Name name) { next_name_ = name; }
  void end_adoption() { adopted_ = {}; }

  // Of a slot that stands in no list.
  void join(Slot slot, Group group) {
    if (group_of_[slot] == group) return;
    leave(slot);
    group_of_[slot] = group;
    ++members_[group];
  }
  void leave(Slot slot) {
    const Group group = group_of_[slot];
    if (group == kNone) return;
    group_of_[slot] = kNone;
    if (--members_[group] == 0) free_.push_back(group);
  }
  void enqueue(Slot slot) {
    const Group group = group_of_[slot];
    SlotList list = (*this)[group];
    list.push_back(slot);
    lists_[group] = list.ends();
    queued_[slot] = 1;
    ++size_;
  }
  void dequeue(Slot slot) {
    const Group group = group_of_[slot];
    SlotList list = (*this)[group];
    list.erase(slot);
    lists_[group] = list.ends();
    queued_[slot] = 0;
    --size_;
  }
  void clear() {
    lists_.assign(lists_.size(), {});
    members_.assign(members_.size(), 0);
    group_of_.assign(group_of_.size(), kNone);
    queued_.assign(queued_.size(), 0);
    free_.clear();
    for (Group group = static_cast<Group>(lists_.size()); group-- > 0;) free_.push_back(group);
    adopted_ = {};
    next_name_ = 0;
    size_ = 0;
  }
  template <typename Knows>
  void check(Knows knows) const {
    std::uint32_t listed = 0;
    std::vector<std::uint32_t> members(members_.size(), 0);
    for (Slot slot = 0; slot < group_of_.size(); ++slot) {
      require(knows(slot) == (group_of_[slot] != kNone), "slot groups: a known block is in no group");
      if (group_of_[slot] != kNone) ++members[group_of_[slot]];
    }
    for (Group group = 0; group < lists_.size(); ++group) {
      (*this)[group].check([&](Slot slot) {
        require(queued_[slot] && group_of_[slot] == group, "slot groups: a block is in the wrong list");
      });
      require(members[group] == members_[group], "slot groups: wrong number of members");
      listed += lists_[group].size;
    }
    require(listed == size_, "slot groups: wrong size");
  }

 private:
  Group open(Name name) {
    const Group group = free_.back();  // there is one: no more groups than slots
    free_.pop_back();
    name_[group] = name;
    return group;
  }

  SlotLinks* links_;
  std::vector<SlotList::Ends> lists_;
  std::vector<std::uint32_t> members_;
  std::vector<Name> name_;
  std::vector<Group> group_of_;  // by slot
  std::vector<std::uint8_t> queued_;
  std::vector<Group> free_;
  std::unordered_map<Name, Group> adopted_;  // during a hand-over
  Name next_name_ = 0;
  std::uint32_t size_ = 0;
};

}  // namespace eviction
