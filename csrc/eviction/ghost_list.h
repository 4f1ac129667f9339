// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
//
// Remembers the keys of evicted blocks, oldest forgotten first. A ghost that a
// request asks for is *expected*: the request recomputes the block and releases
// it, maybe minutes later, and only then does the policy learn where to put it.
// Expected ghosts are renewed, so that they outlive the wait, and they leave
// when the block is inserted.
//
// Several lists of one policy share a store, and a key is in one of them at most.
// All memory is taken at construction: sixteen bytes a ghost, a mark, and the
// index.
#pragma once

#include <vector>

#include "key_index.h"
#include "types.h"

namespace eviction {

class GhostStore {
 public:
  // A ghost of some list, or none; good until the next change.
  struct Ghost {
    std::uint32_t node = KeyIndex::kAbsent;
    explicit operator bool() const { return node != KeyIndex::kAbsent; }
  };

  // Room for `capacity` ghosts of all lists together.
  explicit GhostStore(std::size_t capacity) : index_(capacity), nodes_(capacity), marks_(capacity, 0) { clear(); }

  std::size_t size() const { return index_.size(); }
  std::size_t capacity() const { return nodes_.size(); }
  // One look-up for all lists; a list says whether it owns what was found.
  Ghost find(Key key) const {
    return {index_.find(key, [this](std::uint32_t at) { return nodes_[at].key; })};
  }
  void prefetch(Key key) const { index_.prefetch(key); }
  void number_keys(Key last) { index_.number_keys(last); }
  std::size_t bytes() const { return index_.bytes() + nodes_.size() * (sizeof(Node) + sizeof(marks_[0])); }

 private:
  friend class GhostList;
  static constexpr std::uint32_t kNone = KeyIndex::kAbsent;
  struct Node {
    Key key = kNoKey;
    std::uint32_t prev = kNone;
    std::uint32_t next = kNone;
  };

  void clear() {
    index_.clear();
    for (std::uint32_t node = 0; node < nodes_.size(); ++node) nodes_[node].next = node + 1;
    if (!nodes_.empty()) nodes_.back().next = kNone;
    free_ = nodes_.empty() ? kNone : 0;
  }

  KeyIndex index_;
  std::vector<Node> nodes_;
  std::vector<std::uint8_t> marks_;  // the list's number, and whether expected
  std::uint32_t free_ = kNone;
};

class GhostList {
 public:
  GhostList(GhostStore& store, std::uint8_t number) : store_(&store), number_(number) {}

  using Ghost = GhostStore::Ghost;

  std::size_t size() const { return size_; }
  bool contains(Key key) const { return owns(store_->find(key)); }
  bool owns(Ghost ghost) const { return ghost && (store_->marks_[ghost.node] & ~kExpected) == number_; }

  // None when the list is empty.
  Ghost oldest() const { return {oldest_}; }
  Ghost newest() const { return {newest_}; }

  // Adds a key as the newest. It must not be in a list of the store. The caller makes
  // room in the store before.
  void add(Key key) {
    require(store_->free_ != kNone, "ghost list: the store is full");
    const std::uint32_t node = store_->free_;
    store_->free_ = at(node).next;
    at(node).key = key;
    store_->marks_[node] = number_;
    store_->index_.insert(key, node);
    link_newest(node);
  }

  // The ghost is as if it were added anew.
  void renew(Ghost ghost) {
    store_->marks_[ghost.node] = number_;
    unlink(ghost.node);
    link_newest(ghost.node);
  }
  // A request asks for the ghost.
  void expect(Ghost ghost) {
    unlink(ghost.node);
    link_newest(ghost.node);
    store_->marks_[ghost.node] |= kExpected;
  }
  // Whether a request asked for the ghost since it was added.
  bool expected(Ghost ghost) const { return store_->marks_[ghost.node] & kExpected; }
  void erase(Ghost ghost) {
    store_->index_.erase_at(at(ghost.node).key, ghost.node);
    unlink(ghost.node);
    at(ghost.node).next = store_->free_;
    store_->free_ = ghost.node;
  }

  // Adds or renews a key, as the newest of at most `limit`. It must not be in another
  // list of the store.
  void remember(Key key, std::size_t limit) {
    if (limit == 0 || renew(key)) return;
    trim(limit - 1);
    add(key);
  }

  // The same by key: true when it is a ghost of this list.
  bool renew(Key key) {
    return with(key, [this](Ghost ghost) { renew(ghost); });
  }
  bool expect(Key key) {
    return with(key, [this](Ghost ghost) { expect(ghost); });
  }
  bool erase(Key key) {
    return with(key, [this](Ghost ghost) { erase(ghost); });
  }
  bool expected(Key key) const {
    const Ghost ghost = store_->find(key);
    return owns(ghost) && expected(ghost);
  }

  // Forgets the oldest until at most `limit` are left.
  void trim(std::size_t limit) {
    if (size_ <= limit) return;
    while (size_ > limit) erase(Ghost{oldest_});
    if (oldest_ != kNone) store_->prefetch(at(oldest_).key);  // the next to go
  }

  void trim_one() { trim(size_ - 1); }

  void clear() { trim(0); }

  // Oldest first.
  std::vector<Key> keys() const {
    std::vector<Key> out;
    out.reserve(size_);
    for (std::uint32_t node = oldest_; node != kNone; node = at(node).next) out.push_back(at(node).key);
    return out;
  }

  void check() const {
    std::size_t count = 0;
    std::uint32_t before = kNone;
    for (std::uint32_t node = oldest_; node != kNone; node = at(node).next) {
      require(at(node).prev == before, "ghost list: a link back is wrong");
      require(store_->find(at(node).key).node == node, "ghost list: a ghost is not in the index");
      require(++count <= size_, "ghost list: longer than its size");
      before = node;
    }
    require(newest_ == before && count == size_, "ghost list: shorter than its size");
    require(store_->size() <= store_->capacity(), "ghost list: the store is over its capacity");
  }

 private:
  static constexpr std::uint32_t kNone = GhostStore::kNone;
  static constexpr std::uint8_t kExpected = 0x80;

  GhostStore::Node& at(std::uint32_t node) { return store_->nodes_[node]; }
  const GhostStore::Node& at(std::uint32_t node) const { return store_->nodes_[node]; }
  template <typename Change>
  bool with(Key key, Change change) {
    const Ghost ghost = store_->find(key);
    if (!owns(ghost)) return false;
    change(ghost);
    return true;
  }
  void link_newest(std::uint32_t node) {
    at(node).prev = newest_;
    at(node).next = kNone;
    (newest_ == kNone ? oldest_ : at(newest_).next) = node;
    newest_ = node;
    ++size_;
  }
  void unlink(std::uint32_t node) {
    const std::uint32_t before = at(node).prev;
    const std::uint32_t after = at(node).next;
    (before == kNone ? oldest_ : at(before).next) = after;
    (after == kNone ? newest_ : at(after).prev) = before;
    --size_;
  }

  GhostStore* store_;
  std::uint8_t number_;
  std::size_t size_ = 0;
  std::uint32_t oldest_ = kNone;
  std::uint32_t newest_ = kNone;
};

}  // namespace eviction
