// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
//
// LRU of whole sessions, as large stores of KV caches do it ("When fancy eviction
// fails", 2026): the session that was active longest ago goes, all of it, before
// anything of another is touched. Offline: a comparison for the simulator, which shows
// what the coarse grain costs.
//
// What a session is, the engine does not know. Here:
// - A request goes on with the session of the deepest block that it hits when it hits
//   at least half as many blocks as that session's last request had; else it begins one.
//   So a common system prompt makes no common session.
// - A block belongs to the session that released it last, a shared prefix to the latest.
// - A session that has begun to go, and comes back, is like any other again.
// - Blocks that are released other than at the end of a request stay in their session;
//   new ones are sessions of their own.
//
// No ghosts. Within a session the tail goes first.
#pragma once

#include <algorithm>
#include <unordered_map>

#include "../policy.h"
#include "../slot_groups.h"

namespace eviction {

class SessionLru final : public Policy {
 public:
  explicit SessionLru(std::uint32_t num_slots)
      : Policy(num_slots), groups_(links_), order_links_(num_slots), order_(order_links_), length_(num_slots, 0) {}

  Traits traits() const override { return {.needs_structure = true, .offline = true, .moves_on_hit = true}; }
  std::uint32_t size() const override { return groups_.size(); }
  std::size_t bytes() const override {
    return base_bytes() + groups_.bytes() + length_.size() * (sizeof(length_[0]) + 2 * sizeof(Slot));
  }

  void insert(Slot slot, Key key, const BlockInfo&) override {
    learn(slot, key);
    enter(slot);
  }
  void reinsert(Slot slot) override { enter(slot); }
  void take(Slot slot) override { dequeue(slot); }
  void forget(Slot slot) override {
    if (groups_.queued(slot)) dequeue(slot);
    groups_.leave(slot);
    unlearn(slot);
  }

  std::vector<Slot> peek(std::size_t n) const override {
    std::vector<Slot> out;
    const auto add = [&](Group session) {
      const SlotList list = groups_[session];
      for (Slot slot = list.front(); slot != kNoSlot && out.size() < n; slot = list.next(slot)) out.push_back(slot);
    };
    if (going_ != kNone) add(going_);
    for (Group session = order_.front(); session != kNone && out.size() < n; session = order_.next(session)) {
      if (session != going_) add(session);
    }
    return out;
  }

  void clear() override {
    groups_.clear();
    order_.clear();
    sessions_.clear();
    unlearn_all();
    going_ = releasing_ = kNone;
    finishing_ = false;
    ghost_hits_ = 0;
  }

  void check() const override {
    groups_.check([this](Slot slot) { return knows(slot); });
    std::uint32_t count = 0;
    order_.check([&](Group session) { count += groups_[session].size(); });
    require(count == size(), "session-lru: a session with evictable blocks is in no order");
    require(going_ == kNone || !groups_[going_].empty(), "session-lru: the session that goes is gone");
    require(sessions_.size() <= num_slots(), "session-lru: more requests than blocks");
  }

  void admit(const Admission& request) override {
    end_finish();
    std::size_t hits = 0;
    Slot deepest = kNoSlot;
    for (const Slot slot : request.slots) {
      if (slot == kNoSlot) continue;
      ++hits;
      deepest = slot;
    }
    if (deepest == kNoSlot || groups_.group_of(deepest) == kNone) return;
    const Group session = groups_.group_of(deepest);
    if (2 * hits < length_[session]) return;
    if (sessions_.size() == num_slots()) sessions_.clear();
    sessions_[request.serial] = {session, groups_.name(session)};
  }
  // Its blocks come next.
  void finish(Serial serial, std::span<const Key> cached, double) override {
    end_finish();
    finishing_ = true;
    finished_length_ = static_cast<std::uint32_t>(cached.size());
    const auto found = sessions_.find(serial);
    if (found == sessions_.end()) return;
    const auto [session, name] = found->second;
    sessions_.erase(found);
    // It may have lost all its blocks, and its number may have another owner.
    if (alive(session, name)) releasing_ = session;
  }

  Snapshot snapshot() const override {
    Snapshot out;
    for (const Slot slot : peek(size())) out.entries.push_back(entry(slot));
    for (Slot slot = 0; slot < num_slots(); ++slot) {  // held, but known
      if (knows(slot) && !groups_.queued(slot)) out.entries.push_back(entry(slot));
    }
    const bool releasing = releasing_ != kNone && groups_.has_members(releasing_);
    out.scalars = {static_cast<double>(groups_.next_name()), going_ == kNone ? -1.0 : groups_.name(going_),
                   finishing_ ? static_cast<double>(finished_length_) : -1.0,
                   releasing ? groups_.name(releasing_) : -1.0};
    return out;
  }
  void adopt_history(const Snapshot& snapshot) override {
    groups_.set_next_name(static_cast<std::uint32_t>(snapshot.scalars.at(0)));
    adopted_going_ = snapshot.scalars.at(1);
    finishing_ = snapshot.scalars.at(2) >= 0;
    if (finishing_) finished_length_ = static_cast<std::uint32_t>(snapshot.scalars.at(2));
    adopted_releasing_ = snapshot.scalars.at(3);
  }
  void place(Slot slot, const Snapshot::Entry& known, bool evictable) override {
    learn(slot, known.key);
    const Group session = groups_.named(known.queue);
    groups_.join(slot, session);
    length_[session] = known.value;
    if (known.queue == adopted_releasing_) releasing_ = session;
    if (!evictable) return;
    enqueue(slot);
    if (known.queue == adopted_going_) going_ = session;
  }

 protected:
  Slot choose() override {
    if (size() == 0) return kNoSlot;
    end_finish();
    if (going_ == kNone) going_ = order_.front();
    const Slot slot = groups_[going_].front();
    dequeue(slot);
    groups_.leave(slot);
    return slot;
  }

 private:
  using Group = SlotGroups::Group;
  static constexpr Group kNone = SlotGroups::kNone;
  struct Session {
    Group session;
    SlotGroups::Name name;
  };

  // A name has one owner, whose blocks say so.
  bool alive(Group session, SlotGroups::Name name) const {
    return groups_.name(session) == name && groups_.has_members(session);
  }
  void end_finish() {
    finishing_ = false;
    adopted_going_ = adopted_releasing_ = -1.0;
    releasing_ = kNone;
    groups_.end_adoption();
  }
  void enter(Slot slot) {
    if (finishing_) {
      if (releasing_ != kNone && !groups_.has_members(releasing_)) releasing_ = kNone;
      if (releasing_ == kNone) {
        groups_.leave(slot);
        releasing_ = groups_.open();
      }
      groups_.join(slot, releasing_);
      length_[releasing_] = finished_length_;
    } else if (groups_.group_of(slot) == kNone) {
      const Group session = groups_.open();
      groups_.join(slot, session);
      length_[session] = 1;
    }
    enqueue(slot);
    if (groups_.group_of(slot) == going_) going_ = kNone;
  }
  void enqueue(Slot slot) {
    const Group session = groups_.group_of(slot);
    if (!groups_[session].empty()) order_.erase(session);
    groups_.enqueue(slot);
    order_.push_back(session);
  }
  void dequeue(Slot slot) {
    const Group session = groups_.group_of(slot);
    groups_.dequeue(slot);
    if (!groups_[session].empty()) return;
    order_.erase(session);
    if (going_ == session) going_ = kNone;
  }
  Snapshot::Entry entry(Slot slot) const {
    const Group session = groups_.group_of(slot);
    return {keys_[slot], groups_.name(session), length_[session]};
  }

  SlotGroups groups_;
  SlotLinks order_links_;
  SlotList order_;                                // of the sessions with evictable blocks, by last release
  std::vector<std::uint32_t> length_;             // of a session's last request, blocks
  std::unordered_map<Serial, Session> sessions_;  // with which running requests go on
  Group going_ = kNone;
  bool finishing_ = false;   // what is released now belongs to a request that ended
  Group releasing_ = kNone;  // its session, kNone before it has a block
  std::uint32_t finished_length_ = 0;
  // Names, in a hand-over.
  double adopted_going_ = -1.0;
  double adopted_releasing_ = -1.0;
};

}  // namespace eviction
