// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
//
// Remembers the keys of evicted blocks, oldest forgotten first. A ghost that a
// request asks for is *expected*: the request recomputes the block and releases
// it, maybe minutes later, and only then does the policy learn where to put it.
// Expected ghosts are renewed, so that they outlive the wait, and they leave
// when the block is inserted. The bound holds for both kinds together.
#pragma once

#include <vector>

#include "key_index.h"
#include "types.h"

namespace eviction {

class GhostList {
 public:
  // Holds at most `limit` keys at any time; a caller of `add` may lower that.
  explicit GhostList(std::size_t limit) : index_(limit), nodes_(limit), expected_(limit), limit_(limit) {
    clear();
  }

  std::size_t size() const { return index_.size(); }
  std::size_t limit() const { return limit_; }
  std::size_t bytes() const { return index_.bytes() + nodes_.size() * sizeof(Node); }
  bool contains(Key key) const { return find(key) != kNone; }

  // Adds a key as the newest; renews it when it is known already.
  void add(Key key, std::size_t limit) {
    limit = limit < limit_ ? limit : limit_;
    erase(key);
    if (limit == 0) return;
    trim(limit - 1);
    const std::uint32_t node = free_;
    free_ = nodes_[node].next;
    nodes_[node].key = key;
    expected_[node] = false;
    link_newest(node);
    index_.insert(key, node);
  }
  void add(Key key) { add(key, limit_); }

  // Forgets the oldest until at most `limit` are left.
  void trim(std::size_t limit) {
    while (size() > limit) erase(nodes_[oldest_].key);
  }

  // A request asked for this key: true when it is a ghost. Renews it.
  bool expect(Key key) {
    const std::uint32_t node = find(key);
    if (node == kNone) return false;
    unlink(node);
    link_newest(node);
    expected_[node] = true;
    return true;
  }

  // Whether a request asked for this ghost since it was added.
  bool expected(Key key) const {
    const std::uint32_t node = find(key);
    return node != kNone && expected_[node];
  }

  // Returns true when the key was there.
  bool erase(Key key) {
    const std::uint32_t node = index_.erase(key, [this](std::uint32_t at) { return nodes_[at].key; });
    if (node == KeyIndex::kAbsent) return false;
    unlink(node);
    nodes_[node].next = free_;
    free_ = node;
    return true;
  }

  void clear() {
    index_.clear();
    oldest_ = newest_ = kNone;
    for (std::uint32_t node = 0; node < nodes_.size(); ++node) nodes_[node].next = node + 1;
    if (!nodes_.empty()) nodes_.back().next = kNone;
    free_ = nodes_.empty() ? kNone : 0;
  }

  // Oldest first.
  std::vector<Key> keys() const {
    std::vector<Key> out;
    out.reserve(size());
    for (std::uint32_t node = oldest_; node != kNone; node = nodes_[node].next) out.push_back(nodes_[node].key);
    return out;
  }

  void check() const {
    std::size_t count = 0;
    std::uint32_t before = kNone;
    for (std::uint32_t node = oldest_; node != kNone; node = nodes_[node].next) {
      require(nodes_[node].prev == before, "ghost list: a link back is wrong");
      require(find(nodes_[node].key) == node, "ghost list: a ghost is not in the index");
      require(++count <= size(), "ghost list: longer than its index");
      before = node;
    }
    require(newest_ == before && count == size(), "ghost list: index and list differ");
    require(size() <= limit_, "ghost list: over its limit");
  }

 private:
  static constexpr std::uint32_t kNone = KeyIndex::kAbsent;
  struct Node {
    Key key = kNoKey;
    std::uint32_t prev = kNone;
    std::uint32_t next = kNone;
  };

  std::uint32_t find(Key key) const {
    return index_.find(key, [this](std::uint32_t at) { return nodes_[at].key; });
  }
  void link_newest(std::uint32_t node) {
    nodes_[node].prev = newest_;
    nodes_[node].next = kNone;
    if (newest_ == kNone) oldest_ = node;
    else nodes_[newest_].next = node;
    newest_ = node;
  }
  void unlink(std::uint32_t node) {
    const std::uint32_t before = nodes_[node].prev;
    const std::uint32_t after = nodes_[node].next;
    if (before == kNone) oldest_ = after;
    else nodes_[before].next = after;
    if (after == kNone) newest_ = before;
    else nodes_[after].prev = before;
  }

  KeyIndex index_;
  std::vector<Node> nodes_;
  std::vector<bool> expected_;  // apart, to keep a node at sixteen bytes
  std::size_t limit_;
  std::uint32_t oldest_ = kNone;
  std::uint32_t newest_ = kNone;
  std::uint32_t free_ = kNone;
};

}  // namespace eviction
