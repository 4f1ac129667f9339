// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
//
// The prefix Gittins index, a policy of this project. Blocks that one request
// released and that were used alike form a segment: they return together or not at
// all. A hazard model (gittins/hazard.h) learns when segments return, also after
// they were evicted; the segment whose keeping earns the fewest returns a second goes
// first, its tail ahead of its head, and never a block with a resident child.
//
// What a block's release costs is constant; a segment is looked at again only when
// its age passes the edge of a bucket, in a queue for each edge.
#pragma once

#include <array>
#include <deque>
#include <queue>
#include <unordered_map>
#include <utility>

#include "../gittins/hazard.h"
#include "../policy.h"

namespace eviction {

class Gittins final : public Policy {
 public:
  explicit Gittins(std::uint32_t num_slots) : Policy(num_slots), order_(links_), node_of_(num_slots, kNone) {}

  Traits traits() const override { return {.prefix_safe = true, .needs_structure = true}; }
  std::uint32_t size() const override { return order_.size(); }
  std::size_t num_ghosts() const override { return ghosts_; }
  std::size_t ghost_limit() const override { return kGhostRatio * std::size_t{num_slots()}; }
  std::size_t bytes() const override {
    return base_bytes() + node_of_.size() * sizeof(Id) + nodes_.capacity() * sizeof(Node) + index_.size() * 40 +
           segments_.capacity() * sizeof(Segment) + requests_.size() * (sizeof(Request) + 32) + hazard_.bytes();
  }

  void insert(Slot slot, Key key, const BlockInfo&) override {
    learn(slot, key);
    Id id = find(key);
    if (id != kNone && nodes_[id].slot != kNoSlot) id = kNone;  // a second block of the content
    if (id == kNone) {
      id = make(key, kNone);
      if (!index_.contains(key)) index_[key] = id;
    }
    if (nodes_[id].ghost) leave_ghosts(id, false);
    node_of_[slot] = id;
    nodes_[id].slot = slot;
    if (nodes_[id].parent != kNone) ++nodes_[nodes_[id].parent].children;
    release(slot);
  }
  void reinsert(Slot slot) override { release(slot); }
  void take(Slot slot) override {
    close();
    order_.erase(slot);
    Node& node = nodes_[node_of_[slot]];
    Segment& segment = segments_[node.segment];
    unlink(segment.first, segment.last, node_of_[slot]);
    --segment.free;
    ++segment.taken;
    node.evictable = false;
    offer(node.segment);
  }
  void forget(Slot slot) override {
    if (!knows(slot)) return;
    const Id id = node_of_[slot];
    if (nodes_[id].evictable) take(slot);
    settle(id);
    unlearn(slot);
    lose(id);
    drop(id);
  }
  void disown(Key key) override {
    const Id id = find(key);
    if (id != kNone && nodes_[id].ghost) leave_ghosts(id, true);
  }
  std::vector<Slot> peek(std::size_t n) const override;
  void clear() override;
  void check() const override;
  Snapshot snapshot() const override {
    Snapshot out;
    for (const Slot slot : peek(size())) out.entries.push_back({keys_[slot], 0, 0});
    // The clock too: blocks that are placed have just been released, by it.
    out.scalars = {now_};
    hazard_.save(out.scalars);
    return out;
  }
  void adopt_history(const Snapshot& snapshot) override {
    if (!hazard_.load(snapshot.scalars, 1)) return;
    now_ = snapshot.scalars[0];
  }
  void place(Slot slot, const Snapshot::Entry& entry, bool evictable) override {
    insert(slot, entry.key, {});
    if (!evictable) take(slot);
  }

  void admit(const Admission& request) override;
  void finish(Serial serial, std::span<const Key> cached, double now) override;
  void advance(double now) override;

 protected:
  Slot choose() override;

 private:
  using Id = std::uint32_t;
  static constexpr Id kNone = 0xffffffffu;
  static constexpr std::size_t kGhostRatio = 8;
  static constexpr std::uint32_t kSlack = 2;  // blocks that the next turn may repeat otherwise

  struct Node {
    Key key = kNoKey;
    Id parent = kNone;
    Id segment = kNone;
    Id prev = kNone;
    Id next = kNone;
    Slot slot = kNoSlot;
    std::uint32_t children = 0;  // resident
    std::uint32_t uses = 1;
    std::uint32_t branches = 0;
    double log_gap = 0.0;
    double freed = 0.0;
    Serial last = kNoSerial;
    bool paced = false;
    bool evictable = false;
    bool ghost = false;
    std::uint32_t heirs = 0;  // nodes whose parent it is
    bool live = false;
  };
  struct Segment {
    gittins::Covariates x;
    double birth = 0.0;
    double weight = 0.0;
    double index = 0.0;
    Id first = kNone, last = kNone;  // evictable blocks in path order
    Id ghosts = kNone, ghosts_last = kNone;
    std::uint32_t free = 0;
    std::uint32_t gone = 0;   // ghosts
    std::uint32_t taken = 0;  // by a request that is not admitted yet, or a pin
    std::uint32_t life = 0;   // changes when the place is used anew
    int bucket = -1;
    bool remembered = false;  // stands in the queue of ghosts
    std::uint32_t total() const { return free + gone + taken; }
  };
  static constexpr Serial kNoSerial = ~Serial{0};
  struct Template {
    double ends = 0.0;
    double returns = 0.0;
    double log_gaps = 0.0;
  };
  struct Request {
    std::uint32_t prompt = 0;
    std::uint32_t matched = 0;
    std::uint32_t total = 0;
    Key origin = kNoKey;
    double admitted = 0.0;
    double finished = -1.0;
    std::uint32_t uses = 1;
    bool extended = false;
    std::vector<Key> keys;
  };
  struct Offer {
    double index;
    double birth;
    Id segment;
    std::uint32_t life;
    bool operator<(const Offer& o) const {
      if (index != o.index) return index > o.index;
      return birth != o.birth ? birth > o.birth : segment > o.segment;
    }
  };

  Id find(Key key) const {
    const auto found = index_.find(key);
    return found == index_.end() ? kNone : found->second;
  }
  Id make(Key key, Id parent);
  void drop(Id id);
  void unlink(Id& first, Id& last, Id id);
  void release(Slot slot);
  void close();
  void describe(Id segment, const Node& head);
  void settle(Id id);
  void touch(Id segment, std::uint32_t count, std::uint32_t total);
  void retire(Id segment);
  void leave_ghosts(Id id, bool forget);
  void lose(Id id);
  void trim();
  void offer(Id segment) {
    const Segment& s = segments_[segment];
    if (s.bucket < 0 || s.free == 0 || nodes_[s.last].children != 0) return;
    offers_.push({s.index, s.birth, segment, s.life});
  }
  bool stale(const Offer& o) const {
    const Segment& s = segments_[o.segment];
    return s.life != o.life || s.free == 0 || s.index != o.index || nodes_[s.last].children != 0;
  }
  static int octave(double x, int most) { return x < 1.0 ? 0 : std::min(most, 1 + static_cast<int>(std::log2(x))); }
  static int gap_octave(double log_gap) {
    return std::clamp(1 + static_cast<int>(std::floor(log_gap / std::log(2.0) + 3.0)), 1, 13);
  }
  static int uses_class(std::uint32_t n, bool coarse) {
    if (coarse) return n <= 1 ? 0 : n == 2 ? 1 : n <= 4 ? 2 : 3;
    return n <= 3 ? static_cast<int>(std::max(n, 1u)) - 1 : n <= 5 ? 3 : n <= 8 ? 4 : n <= 16 ? 5 : n <= 40 ? 6 : 7;
  }
  static bool alike(const Node& a, const Node& b) {
    const auto kind = [](const Node& n) {
      const int branches = n.branches == 0 ? 0 : n.branches < 3 ? 1 : 2;
      return ((n.paced ? gap_octave(n.log_gap) : 0) * 4 + uses_class(n.uses, true)) * 3 + branches;
    };
    return kind(a) == kind(b) && a.last == b.last;
  }

  gittins::Hazard hazard_;
  SlotList order_;  // all evictable blocks by release: for when pins leave no leaf
  std::vector<Id> node_of_;
  std::vector<Node> nodes_;
  std::vector<Id> spare_nodes_;
  std::unordered_map<Key, Id> index_;
  std::vector<Segment> segments_;
  std::vector<Id> spare_segments_;
  std::vector<Id> open_;  // of the release that is going on, tail first
  std::array<std::deque<std::pair<Id, std::uint32_t>>, gittins::kBuckets> timers_;
  std::priority_queue<Offer> offers_;
  std::deque<std::pair<Id, std::uint32_t>> remembered_;
  std::unordered_map<Serial, Request> requests_;
  std::deque<Serial> ended_;
  std::unordered_map<Key, Template> templates_;
  std::size_t ghosts_ = 0;
  double mean_size_ = 0.0;
  double now_ = 0.0;
};

inline Gittins::Id Gittins::make(Key key, Id parent) {
  Id id;
  if (spare_nodes_.empty()) {
    id = static_cast<Id>(nodes_.size());
    nodes_.emplace_back();
  } else {
    id = spare_nodes_.back();
    spare_nodes_.pop_back();
    nodes_[id] = Node{};
  }
  nodes_[id].key = key;
  nodes_[id].parent = parent;
  nodes_[id].live = true;
  if (parent != kNone) ++nodes_[parent].heirs;
  return id;
}

// Forgets a block that is neither resident nor a ghost, once no child points at it.
inline void Gittins::drop(Id id) {
  while (id != kNone) {
    Node& node = nodes_[id];
    if (!node.live || node.slot != kNoSlot || node.ghost || node.segment != kNone) return;
    const auto found = index_.find(node.key);
    if (found != index_.end() && found->second == id) {
      index_.erase(found);
      templates_.erase(node.key);
    }
    if (node.heirs > 0) return;
    node.live = false;
    spare_nodes_.push_back(id);
    id = node.parent;
    if (id != kNone) --nodes_[id].heirs;
    if (id != kNone && find(nodes_[id].key) == id) return;  // still of use
  }
}

inline void Gittins::unlink(Id& first, Id& last, Id id) {
  const Node& node = nodes_[id];
  (node.prev == kNone ? first : nodes_[node.prev].next) = node.next;
  (node.next == kNone ? last : nodes_[node.next].prev) = node.prev;
}

inline void Gittins::release(Slot slot) {
  order_.push_back(slot);
  const Id id = node_of_[slot];
  settle(id);
  Node& node = nodes_[id];
  node.evictable = true;
  node.freed = now_;
  Id segment = kNone;
  if (!open_.empty()) {
    const Node& head = nodes_[segments_[open_.back()].first];
    if (head.parent == id && alike(head, node)) segment = open_.back();
  }
  if (segment == kNone) {
    if (spare_segments_.empty()) {
      segment = static_cast<Id>(segments_.size());
      segments_.emplace_back();
    } else {
      segment = spare_segments_.back();
      spare_segments_.pop_back();
      const std::uint32_t life = segments_[segment].life;
      segments_[segment] = Segment{};
      segments_[segment].life = life;
    }
    open_.push_back(segment);
  }
  Segment& s = segments_[segment];
  node.segment = segment;
  node.prev = kNone;
  node.next = s.first;
  (s.first == kNone ? s.last : nodes_[s.first].prev) = id;
  s.first = id;
  ++s.free;
}

// The release is over: its segments get their age, their covariates and an index.
inline void Gittins::close() {
  while (!open_.empty()) {
    const Id segment = open_.back();
    open_.pop_back();
    Segment& s = segments_[segment];
    describe(segment, nodes_[s.first]);
    mean_size_ = mean_size_ == 0.0 ? s.free : 0.99 * mean_size_ + 0.01 * s.free;
    s.weight = std::sqrt(std::min(8.0, s.free / mean_size_));
    s.birth = now_;
    s.bucket = 0;
    s.index = hazard_.index(s.x, 0);
    timers_[1].emplace_back(segment, s.life);
    offer(segment);
  }
}

inline void Gittins::describe(Id segment, const Node& head) {
  gittins::Covariates& x = segments_[segment].x;
  x.values.fill(-1);
  x.shared = head.branches > 0;
  x.paced = head.paced;
  x.log_gap = head.log_gap;
  const int gap = head.paced ? gap_octave(head.log_gap) : 0;
  const auto set = [&](int feature, int value) { x.values[feature] = static_cast<std::int8_t>(value); };
  set(0, uses_class(head.uses, false) + (x.shared ? 12 : 0));
  set(1, gap);
  if (x.shared) {
    const std::uint32_t b = head.branches;
    set(5, b <= 1 ? 0 : b <= 2 ? 1 : b <= 4 ? 2 : b <= 16 ? 3 : 4);
    return;
  }
  const auto found = requests_.find(head.last);
  if (found == requests_.end()) return;
  const Request& r = found->second;
  set(2, octave(r.prompt - std::min(r.prompt, r.matched), 14));
  set(3, octave(r.total, 15));
  if (r.finished >= 0.0) set(4, octave((r.finished - r.admitted) / 0.32, 14));
  const auto origin = templates_.find(r.origin);
  if (origin == templates_.end()) return;
  const Template& t = origin->second;
  if (t.ends > 2.0) {
    const int rate = std::clamp(static_cast<int>(10.0 * (t.returns + 0.5) / (t.ends + 1.0)), 0, 9);
    set(6, rate + (head.uses > 1 ? 10 : 0));
  }
  if (t.returns > 1.0) set(7, gap_octave(t.log_gaps / t.returns));
}

// A block that left its segment without a request's doing.
inline void Gittins::settle(Id id) {
  const Id segment = nodes_[id].segment;
  if (segment == kNone) return;
  nodes_[id].segment = kNone;
  --segments_[segment].taken;
  retire(segment);
}

inline void Gittins::retire(Id segment) {
  Segment& s = segments_[segment];
  if (s.total() > 0) return;
  ++s.life;
  s.bucket = -1;
  spare_segments_.push_back(segment);
}

inline void Gittins::leave_ghosts(Id id, bool forget) {
  Node& node = nodes_[id];
  Segment& s = segments_[node.segment];
  unlink(s.ghosts, s.ghosts_last, id);
  --s.gone;
  --ghosts_;
  node.ghost = false;
  const Id segment = node.segment;
  node.segment = kNone;
  retire(segment);
  if (forget) drop(id);
}

// The block is not resident any more.
inline void Gittins::lose(Id id) {
  Node& node = nodes_[id];
  node_of_[node.slot] = kNone;
  node.slot = kNoSlot;
  if (node.parent == kNone) return;
  Node& parent = nodes_[node.parent];
  if (--parent.children == 0 && parent.evictable && segments_[parent.segment].last == node.parent)
    offer(parent.segment);
}

inline void Gittins::trim() {
  while (ghosts_ > ghost_limit() && !remembered_.empty()) {
    const auto [segment, life] = remembered_.front();
    remembered_.pop_front();
    if (segments_[segment].life != life) continue;
    segments_[segment].remembered = false;
    for (std::uint32_t left = segments_[segment].gone; left > 0; --left) {
      leave_ghosts(segments_[segment].ghosts, true);
    }
  }
}

inline Slot Gittins::choose() {
  if (order_.empty()) return kNoSlot;
  close();
  while (!offers_.empty() && stale(offers_.top())) offers_.pop();
  const Slot slot = offers_.empty() ? order_.front() : nodes_[segments_[offers_.top().segment].last].slot;
  order_.erase(slot);
  const Id id = node_of_[slot];
  Node& node = nodes_[id];
  const Id segment = node.segment;
  Segment& s = segments_[segment];
  unlink(s.first, s.last, id);
  --s.free;
  node.evictable = false;
  if (find(node.key) == id) {
    node.ghost = true;
    node.next = s.ghosts;
    node.prev = kNone;
    (s.ghosts == kNone ? s.ghosts_last : nodes_[s.ghosts].prev) = id;
    s.ghosts = id;
    ++s.gone;
    ++ghosts_;
    if (!s.remembered) remembered_.emplace_back(segment, s.life);
    s.remembered = true;
    lose(id);
  } else {
    node.segment = kNone;
    lose(id);
    retire(segment);
    drop(id);
  }
  if (segments_[segment].free > 0 && nodes_[segments_[segment].last].children == 0 &&
      (offers_.empty() || offers_.top().segment != segment)) {
    offer(segment);
  }
  trim();
  return slot;
}

inline void Gittins::advance(double now) {
  close();
  now_ = std::max(now_, now);
  for (int bucket = 1; bucket < gittins::kBuckets; ++bucket) {
    auto& timer = timers_[bucket];
    while (!timer.empty()) {
      const auto [segment, life] = timer.front();
      Segment& s = segments_[segment];
      const bool live = s.life == life;
      if (live && s.birth + hazard_.ages().edge(bucket) > now_) break;
      timer.pop_front();
      if (!live) continue;
      hazard_.learn(s.x, bucket - 1, false, s.weight);
      s.bucket = bucket;
      if (bucket + 1 < gittins::kBuckets) timers_[bucket + 1].emplace_back(segment, life);
      s.index = hazard_.index(s.x, bucket);
      offer(segment);
    }
  }
}

inline void Gittins::touch(Id segment, std::uint32_t count, std::uint32_t total) {
  Segment& s = segments_[segment];
  const double share = static_cast<double>(count) / total;
  hazard_.learn(s.x, hazard_.ages().bucket(now_ - s.birth), true, s.weight * share);
  s.weight *= 1.0 - share;
}

inline void Gittins::admit(const Admission& request) {
  advance(request.now);
  const std::span<const Key> keys = request.keys;
  const std::uint32_t length = static_cast<std::uint32_t>(keys.size());
  std::uint32_t matched = 0;
  while (matched < length && find(keys[matched]) != kNone) ++matched;
  Request& r = requests_[request.serial];
  r = Request{};
  r.prompt = r.total = length;
  r.matched = matched;
  r.admitted = now_;
  r.keys.assign(keys.begin(), keys.end());

  bool continues = false;
  if (matched > 0) {
    const auto before = requests_.find(nodes_[find(keys[matched - 1])].last);
    if (before != requests_.end() && before->first != request.serial) {
      continues = matched + kSlack >= before->second.prompt;
      if (continues) {
        r.origin = before->second.origin;
        if (!std::exchange(before->second.extended, true)) {
          Template& t = templates_[r.origin];
          const double finished = before->second.finished;
          t.returns += 1.0;
          t.log_gaps += std::log(std::max(0.1, finished < 0.0 ? 0.0 : now_ - finished));
        }
      }
    }
  }
  for (std::uint32_t i = 0; i < matched; ++i) {
    const Id id = find(keys[i]);
    Node& node = nodes_[id];
    const double gap = std::log(node.segment == kNone ? 0.1 : std::max(0.1, now_ - node.freed));
    node.branches += !continues;
    ++node.uses;
    node.log_gap = node.paced ? 0.5 * (node.log_gap + gap) : gap;
    node.paced = true;
    node.last = request.serial;
    if (!continues && node.branches >= 2) r.origin = keys[i];
  }
  // What returned of each segment, at once.
  for (std::uint32_t i = 0; i < matched;) {
    const Id segment = nodes_[find(keys[i])].segment;
    std::uint32_t end = i + 1;
    if (segment == kNone || nodes_[find(keys[i])].evictable) {
      i = end;
      continue;
    }
    while (end < matched && nodes_[find(keys[end])].segment == segment && !nodes_[find(keys[end])].evictable) ++end;
    touch(segment, end - i, segments_[segment].total());
    for (; i < end; ++i) {
      const Id id = find(keys[i]);
      if (nodes_[id].ghost) {
        ++ghost_hits_;
        leave_ghosts(id, false);
      } else {
        settle(id);
      }
    }
  }
  const Id stem = matched > 0 ? find(keys[matched - 1]) : kNone;
  r.uses = continues ? nodes_[stem].uses : 1;
  Id parent = stem;
  for (std::uint32_t i = matched; i < length; ++i) {
    Id id = find(keys[i]);
    if (id == kNone) {
      id = make(keys[i], parent);
      index_[keys[i]] = id;
    } else if (nodes_[id].ghost) {
      leave_ghosts(id, false);
    }
    Node& node = nodes_[id];
    node.uses = r.uses;
    node.paced = continues && nodes_[stem].paced;
    node.log_gap = node.paced ? nodes_[stem].log_gap : 0.0;
    node.branches = 0;
    node.last = request.serial;
    parent = id;
  }
}

inline void Gittins::finish(Serial serial, std::span<const Key> cached, double now) {
  advance(now);
  const auto found = requests_.find(serial);
  if (found == requests_.end()) return;
  Request& r = found->second;
  r.finished = now_;
  r.total = static_cast<std::uint32_t>(cached.size());
  Template& t = templates_[r.origin];
  t = {0.98 * t.ends + 1.0, 0.98 * t.returns, 0.98 * t.log_gaps};
  Id parent = cached.empty() ? kNone : find(cached[0]);
  const Id stem = r.prompt > 0 ? find(r.keys.back()) : kNone;
  for (const Key key : cached) {
    Id id = find(key);
    if (id == kNone) {
      id = make(key, parent);
      index_[key] = id;
      Node& node = nodes_[id];
      node.last = serial;
      if (stem != kNone && !(nodes_[stem].branches > 0 && r.uses <= 1)) {
        node.uses = nodes_[stem].uses;
        node.paced = nodes_[stem].paced;
        node.log_gap = nodes_[stem].log_gap;
      }
    }
    parent = id;
  }
  r.keys = {};
  ended_.push_back(serial);
  if (ended_.size() > std::size_t{2} * num_slots() + 1024) {
    requests_.erase(ended_.front());
    ended_.pop_front();
  }
}

// Works on a copy of the heap, with what would have changed beside it.
inline std::vector<Slot> Gittins::peek(std::size_t n) const {
  const_cast<Gittins*>(this)->close();
  std::vector<Slot> out;
  std::priority_queue<Offer> offers = offers_;
  std::unordered_map<Id, std::uint32_t> lost;  // children
  std::unordered_map<Id, Id> tails;
  std::vector<bool> gone(num_slots(), false);
  Slot oldest = order_.front();
  const auto tail = [&](Id segment) {
    const auto found = tails.find(segment);
    Id id = found == tails.end() ? segments_[segment].last : found->second;
    while (id != kNone && gone[nodes_[id].slot]) id = nodes_[id].prev;
    return id;
  };
  const auto leaf = [&](Id id) {
    const auto found = lost.find(id);
    return nodes_[id].children == (found == lost.end() ? 0 : found->second);
  };
  while (out.size() < std::min<std::size_t>(n, order_.size())) {
    Id id = kNone;
    while (id == kNone && !offers.empty()) {
      const Offer o = offers.top();
      const Segment& s = segments_[o.segment];
      if (s.life == o.life && s.index == o.index) id = tail(o.segment);
      if (id != kNone && !leaf(id)) id = kNone;
      if (id == kNone) offers.pop();
    }
    if (id == kNone) {
      while (gone[oldest]) oldest = order_.next(oldest);
      id = node_of_[oldest];
    }
    const Node& node = nodes_[id];
    gone[node.slot] = true;
    out.push_back(node.slot);
    const auto again = [&](Id segment) {
      const Segment& s = segments_[segment];
      offers.push({s.index, s.birth, segment, s.life});
    };
    tails[node.segment] = tail(node.segment);
    if (tails[node.segment] != kNone) again(node.segment);
    if (node.parent == kNone) continue;
    ++lost[node.parent];
    if (nodes_[node.parent].evictable && leaf(node.parent)) again(nodes_[node.parent].segment);
  }
  return out;
}

inline void Gittins::clear() {
  hazard_.clear();
  order_.clear();
  node_of_.assign(node_of_.size(), kNone);
  nodes_.clear();
  spare_nodes_.clear();
  index_.clear();
  segments_.clear();
  spare_segments_.clear();
  open_.clear();
  for (auto& timer : timers_) timer.clear();
  offers_ = {};
  remembered_.clear();
  requests_.clear();
  ended_.clear();
  templates_.clear();
  ghosts_ = 0;
  mean_size_ = 0.0;
  now_ = 0.0;
  ghost_hits_ = 0;
  unlearn_all();
}

inline void Gittins::check() const {
  std::uint32_t free = 0;
  std::size_t gone = 0;
  for (const Segment& s : segments_) {
    std::uint32_t count = 0;
    for (Id id = s.first; s.free > 0 && id != kNone; id = nodes_[id].next) {
      require(nodes_[id].evictable && node_of_[nodes_[id].slot] == id,
              "gittins: a segment has a block that is not evictable");
      ++count;
    }
    require(count == s.free, "gittins: a segment has another size");
    free += count;
    gone += s.total() > 0 ? s.gone : 0;
  }
  order_.check(
      [this](Slot slot) { require(nodes_[node_of_[slot]].evictable, "gittins: a queued block is not evictable"); });
  require(free == order_.size(), "gittins: an evictable block is in no segment");
  require(gone == ghosts_, "gittins: the ghosts do not add up");
  require(ghosts_ <= ghost_limit(), "gittins: too many ghosts");
}

}  // namespace eviction
