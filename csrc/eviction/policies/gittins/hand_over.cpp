// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
//
// `gittins` in a snapshot and out of it. All that was learnt passes on: the model and the
// templates, every segment with its age and index, the ghosts, and of each block what
// fits into a word. Which block hangs below which is told by the order of the blocks of
// a segment, and by pairs of keys where that is not enough.

#include <algorithm>

#include "../gittins.h"
#include "adopted.h"

namespace eviction {

using gittins::Attributes;
using gittins::Segment;

namespace {

// What a snapshot's entry says of its segment: its number from 1 on, or one of these.
constexpr std::uint32_t kNoSegment = 0;
constexpr std::uint32_t kInSpill = 0xffffffffu;
constexpr std::size_t kHeader = 5;

void put_key(std::vector<double>& out, Key key) {  // all 64 bits, as exact numbers
  out.push_back(static_cast<double>(key >> 32));
  out.push_back(static_cast<double>(key & 0xffffffffu));
}

class Reader {
 public:
  explicit Reader(const double* at) : at_(at) {}
  double number() { return *at_++; }
  template <typename T>
  void into(T& out) {
    out = static_cast<T>(*at_++);
  }
  Key key() {
    const auto high = static_cast<Key>(*at_++);
    return high << 32 | static_cast<Key>(*at_++);
  }
  const double* skip(std::size_t n) {
    at_ += n;
    return at_ - n;
  }

 private:
  const double* at_;
};

void write(const Segment& segment, std::vector<double>& out) {
  const auto& x = segment.x;
  for (const double value :
       {static_cast<double>(segment.ticket), segment.birth, double{segment.weight}, double{segment.index},
        static_cast<double>(segment.gone), static_cast<double>(segment.tail), static_cast<double>(segment.end),
        static_cast<double>(segment.first_gone), static_cast<double>(segment.spacing),
        static_cast<double>(segment.prompt), static_cast<double>(segment.learnt.bits()),
        static_cast<double>(segment.origin), static_cast<double>(segment.bucket), static_cast<double>(x.paced),
        static_cast<double>(x.shared), double{x.log_gap}}) {
    out.push_back(value);
  }
  for (const std::int8_t value : x.values) out.push_back(value);
}

void read(Segment& segment, Reader& in) {
  in.into(segment.ticket);
  in.into(segment.birth);
  in.into(segment.weight);
  in.into(segment.index);
  in.into(segment.gone);
  in.into(segment.tail);
  in.into(segment.end);
  in.into(segment.first_gone);
  in.into(segment.spacing);
  in.into(segment.prompt);
  segment.learnt = Attributes::from_bits(static_cast<std::uint32_t>(in.number()));
  in.into(segment.origin);
  in.into(segment.bucket);
  segment.x.paced = in.number() != 0.0;
  segment.x.shared = in.number() != 0.0;
  in.into(segment.x.log_gap);
  for (std::int8_t& value : segment.x.values) in.into(value);
}
constexpr std::size_t kRow = 16 + gittins::kFeatures;

}  // namespace

Snapshot Gittins::snapshot() const {
  Snapshot out;
  std::vector<Id> ids;
  for (Id id = kSpill + 1; id < segments_.capacity(); ++id) {
    if (segments_[id].total() > 0) ids.push_back(id);
  }
  std::sort(ids.begin(), ids.end(), [this](Id a, Id b) { return segments_[a].ticket < segments_[b].ticket; });
  std::vector<std::uint32_t> numbers(segments_.capacity(), kNoSegment);
  for (std::uint32_t i = 0; i < ids.size(); ++i) numbers[ids[i]] = i + 1;
  numbers[kSpill] = kInSpill;

  std::vector<double> links;
  std::size_t num_links = 0;
  const auto add = [&](Slot slot) {
    const auto& block = tree_[slot];
    const std::uint32_t number = block.segment == kNone ? kNoSegment : numbers[block.segment];
    out.entries.push_back({keys_[slot], number, block.learnt.bits()});
    const Slot next = block.evictable ? segments_[block.segment].chain.next(slot) : kNoSlot;
    Slot parent = tree_.parent(slot);
    if (parent != kNoSlot && !knows(parent)) parent = kNoSlot;
    if (parent == next) return;
    put_key(links, keys_[slot]);
    put_key(links, parent == kNoSlot ? kNoKey : keys_[parent]);
    ++num_links;
  };
  for (const Slot slot : peek(size_)) add(slot);
  for (Slot slot = 0; slot < num_slots(); ++slot) {  // held, but known
    if (knows(slot) && !tree_[slot].evictable) add(slot);
  }

  // A release that is going on is over, as far as the other is concerned.
  double mean_size = mean_size_;
  Segment complete(segments_[open_ == kNone ? kSpill : open_]);
  if (open_ != kNone) complete_segment(complete, mean_size);
  out.scalars = {now_, mean_size, static_cast<double>(tickets_), static_cast<double>(ids.size()),
                 static_cast<double>(num_links)};
  hazard_.save(out.scalars);
  templates_.save(out.scalars);
  for (const Id id : ids) write(id == open_ ? complete : segments_[id], out.scalars);
  out.ghosts.push_back(ghosts_.keys());
  for (const Key key : out.ghosts[0]) {
    const Ghost ghost = ghosts_.find(key);
    const Id id = ghosts_.segment(ghost);
    out.scalars.push_back(id == kNone ? kNoSegment : numbers[id]);
    out.scalars.push_back(ghosts_.place(ghost));
  }
  out.scalars.insert(out.scalars.end(), links.begin(), links.end());
  return out;
}

// Before the blocks: segments in the order of their birth, as the timers want them.
void Gittins::adopt_history(const Snapshot& snapshot) {
  const std::size_t learnt = kHeader + gittins::HazardModel::saved_size() + templates_.saved_size();
  if (snapshot.scalars.size() < learnt) return;  // of a policy that learnt nothing
  Reader in(snapshot.scalars.data());
  now_ = in.number();
  due_ = now_;
  mean_size_ = in.number();
  in.into(tickets_);
  const auto num_segments = static_cast<std::size_t>(in.number());
  const auto num_links = static_cast<std::size_t>(in.number());
  hazard_.load({in.skip(gittins::HazardModel::saved_size()), gittins::HazardModel::saved_size()});
  templates_.load(in.skip(templates_.saved_size()));

  adopted_ = std::make_unique<Adopted>();
  std::vector<Segment> rows(num_segments, Segment(links_));
  for (Segment& row : rows) read(row, in);
  for (Segment& row : rows) {
    if (segments_.full()) {
      adopted_->segments.push_back(kNone);
      continue;
    }
    const Id id = segments_.add();
    segments_[id] = row;
    segments_[id].gone = 0;
    segments_[id].adopted = true;
    adopted_->segments.push_back(id);
    if (row.bucket + 1 < gittins::kBuckets) timers_.start(id, row.bucket + 1);
  }
  for (const Key key : snapshot.ghosts.at(0)) {
    const auto number = static_cast<std::uint32_t>(in.number());
    const auto place = static_cast<std::uint32_t>(in.number());
    const Id id = number == kNoSegment ? kNone : adopted_->segments[number - 1];
    if (number != kNoSegment && id == kNone) continue;
    if (ghosts_.full()) forget_ghost(ghosts_.oldest());
    ghosts_.add(key, id, place);
    if (id == kNone) continue;
    Segment& segment = segments_[id];
    if (segment.num_keys++ == 0) {
      segment.gone = rows[number - 1].gone;
      gone_ += segment.gone;
    }
  }
  while (gone_ > kMostGone * num_slots() && ghosts_.oldest()) forget_ghost(ghosts_.oldest());
  for (std::size_t i = 0; i < num_links; ++i) {
    const Key child = in.key();
    const Key parent = in.key();
    adopted_->parents[child] = parent;
    if (parent != kNoKey) adopted_->awaited[parent];
  }
}

void Gittins::place(Slot slot, const Snapshot::Entry& entry, bool evictable) {
  close();
  if (adopted_ != nullptr) adopted_->placing = true;
  disown(entry.key);
  reset(slot);
  learn(slot, entry.key);
  gittins::BlockTree::Block& block = tree_[slot];
  block.learnt = Attributes::from_bits(entry.value);
  Id id = kNone;
  if (entry.queue == kInSpill) {
    id = kSpill;
  } else if (adopted_ != nullptr && entry.queue != kNoSegment && entry.queue <= adopted_->segments.size()) {
    id = adopted_->segments[entry.queue - 1];
  }
  if (evictable) {
    if (id == kNone) id = open_segment(slot, kUnplaced);
    Segment& segment = segments_[id];
    const Slot below = segment.chain.back();
    segment.chain.push_back(slot);
    block.segment = id;
    block.evictable = true;
    ++size_;
    const bool is_parent = adopted_ != nullptr && below != kNoSlot && !adopted_->parents.contains(keys_[below]);
    if (is_parent) tree_.link(below, slot);
    releasing_ = open_ != kNone;
  } else if (id != kNone) {
    block.segment = id;
    ++segments_[id].taken;
  }
  if (adopted_ != nullptr) {
    if (const auto found = adopted_->parents.find(entry.key); found != adopted_->parents.end()) {
      const auto parent = adopted_->awaited.find(found->second);
      if (parent == adopted_->awaited.end()) {
        // It has none.
      } else if (const Slot above = parent->second.slot; above != kNoSlot) {
        tree_.link(slot, above);
        if (tree_[above].evictable) refresh(tree_[above].segment);
      } else {
        parent->second.children.push_back(slot);
      }
    }
    if (const auto awaited = adopted_->awaited.find(entry.key); awaited != adopted_->awaited.end()) {
      awaited->second.slot = slot;
      for (const Slot child : awaited->second.children) {
        const auto parent = knows(child) ? adopted_->parents.find(keys_[child]) : adopted_->parents.end();
        if (parent != adopted_->parents.end() && parent->second == entry.key) tree_.link(child, slot);
      }
      awaited->second.children.clear();
    }
  }
  if (evictable) refresh(block.segment);
}

// A segment that has no block here by now gets none.
bool Gittins::end_adoption(std::size_t budget) {
  if (adopted_ == nullptr) return true;
  adopted_->placing = true;
  for (; budget > 0 && adopted_->let_go < adopted_->segments.size(); --budget) {
    const Id id = adopted_->segments[adopted_->let_go++];
    if (id == kNone || !segments_[id].adopted) continue;
    segments_[id].adopted = false;
    retire_if_empty(id);
  }
  for (; budget > 0 && !adopted_->parents.empty(); --budget) adopted_->parents.erase(adopted_->parents.begin());
  for (; budget > 0 && !adopted_->awaited.empty(); --budget) adopted_->awaited.erase(adopted_->awaited.begin());
  if (budget == 0) return false;
  adopted_.reset();
  return true;
}

}  // namespace eviction
