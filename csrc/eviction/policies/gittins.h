// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
//
// The prefix Gittins index, a policy of this project; docs/design/gittins.md says why it
// works. Blocks that one request released and that are alike form a segment
// (gittins/segments.h): they return together or not at all. A model learns online when
// segments return, also after their eviction (gittins/hazard_model.h), and the segment
// whose keeping earns the fewest returns for the seconds that it is held goes first
// (gittins/gittins_index.h), its deepest block first, and never a block with a resident
// child while there is one without.
//
// A block costs constant time. A segment is looked at again only when its age passes the
// edge of a bucket (gittins/age_timers.h), and moved in a heap then. All memory is taken
// at construction, in tables whose sizes follow from the pool's: at most 160 bytes a
// block, ghosts included.
//
// Where this differs from the trial that it comes from, and why:
// - Ghosts are remembered by four keys a segment and those at the end of a prompt, as
//   many keys as the pool has blocks, not by a key for every block or every sixteenth.
//   On Mooncake's trace that is as good and takes an eighth of the memory.
// - A segment's index is kept from edge to edge of its age, not interpolated.
// - Instead of the tokens of the output the time that the request ran, in units of 0.32 s:
//   a policy is told of full blocks only. Other lengths are in blocks, not in tokens.
// - Blocks are in one segment when all their features agree, so that features are known
//   when the first of them is released.
// - What a policy is not told, releases outside the end of a request, makes segments
//   without the features of a request.
#pragma once

#include <memory>
#include <vector>

#include "../policy.h"
#include "gittins/age_timers.h"
#include "gittins/block_tree.h"
#include "gittins/eviction_heap.h"
#include "gittins/ghost_keys.h"
#include "gittins/gittins_index.h"
#include "gittins/hazard_model.h"
#include "gittins/segments.h"
#include "gittins/sessions.h"

namespace eviction {

class Gittins final : public Policy {
 public:
  explicit Gittins(std::uint32_t num_slots);
  ~Gittins() override;

  Traits traits() const override { return {.prefix_safe = true, .needs_structure = true, .moves_on_hit = true}; }
  std::uint32_t size() const override { return size_; }
  std::size_t num_ghosts() const override { return ghosts_.size(); }
  std::size_t ghost_limit() const override { return ghosts_.capacity(); }
  std::size_t bytes() const override;

  void insert(Slot slot, Key key, const BlockInfo& info) override;
  void reinsert(Slot slot) override { release(slot, locate(keys_[slot])); }
  void take(Slot slot) override;
  void forget(Slot slot) override;
  void disown(Key key) override;
  std::vector<Slot> peek(std::size_t n) const override;
  void clear() override;
  void check() const override;
  void number_keys(Key last) override { ghosts_.number_keys(last); }
  void prefetch(Key key, Slot slot) const override {
    ghosts_.prefetch(key);
    if (slot != kNoSlot) tree_.prefetch(slot);
  }

  std::vector<double> model() const override;
  bool load_model(std::span<const double> model) override;
  std::map<std::string, std::vector<double>> report() const override;

  Snapshot snapshot() const override;
  void adopt_history(const Snapshot& snapshot) override;
  void place(Slot slot, const Snapshot::Entry& entry, bool evictable) override;
  bool end_adoption(std::size_t budget) override;

  void admit(const Admission& request) override;
  void finish(Serial serial, std::span<const Key> cached, double now) override;
  void advance(double now) override;

 protected:
  Slot choose() override;

 private:
  using Id = std::uint32_t;  // of a segment
  using Ghost = gittins::GhostKeys::Ghost;
  static constexpr Id kNone = gittins::kNone;
  static constexpr Id kSpill = gittins::SegmentTable::kSpill;
  static constexpr std::uint32_t kSlack = 2;            // blocks at a prompt's end that the next turn may change
  static constexpr std::uint32_t kKeys = 4;             // of a segment that is gone, about
  static constexpr std::size_t kMostGone = 8;           // blocks that are remembered, in pools
  static constexpr std::uint32_t kUnplaced = 1u << 30;  // on no known path
  static constexpr std::size_t kEdgesAtOnce = 1024;     // half a millisecond

  // ---- Releases: from the first until anything else happens. ----

  void release(Slot slot, std::uint32_t place);
  std::uint32_t locate(Key key);
  Id open_segment(Slot slot, std::uint32_t place);
  void find_parent_of_last();
  void close() {
    if (releasing_) close_releases();
  }
  void close_releases();
  // No block joins the open segment any more: its size says its weight.
  void complete_segment();
  static void complete_segment(gittins::Segment& segment, double& mean_size);

  // ---- Segments. ----

  gittins::Covariates describe(const gittins::Attributes& learnt, bool placed) const;
  float index_of(const gittins::Segment& segment) const;
  void refresh(Id id);
  void uncover(Slot parent);
  void retire_if_empty(Id id);
  void settle(Slot slot);
  void reset(Slot slot) { uncover(tree_.empty(slot)); }
  void fetch(Slot slot) const {
    if (slot == kNoSlot) return;
    tree_.prefetch(slot);
    links_.prefetch(slot);
    __builtin_prefetch(&keys_[slot]);
  }
  void returned(Id id, std::uint32_t count, gittins::CountsByAge& counts);

  // ---- Ghosts. ----

  void remember(Id id, Key key, std::uint32_t place);
  void forget_ghost(Ghost ghost);

  // ---- Admission. ----

  // The deepest key of a segment that a request asks for.
  struct Found {
    Id id;
    std::uint32_t place;  // within the segment
    std::uint32_t at;     // on the request's path
  };
  void find_ghosts(const Admission& request, std::uint32_t hits);
  bool continues_session(Id stem, gittins::Request& admitted);
  void use_hits(const Admission& request, gittins::Request& admitted, std::uint32_t hits, bool continues);
  void use_ghosts(const Admission& request, gittins::Request& admitted, bool continues);

  gittins::HazardModel hazard_;
  gittins::BlockTree tree_;
  gittins::SegmentTable segments_;
  gittins::EvictionHeap heap_;
  gittins::AgeTimers timers_;
  gittins::GhostKeys ghosts_;
  gittins::RunningRequests running_;
  gittins::Templates templates_;
  std::uint32_t size_ = 0;
  std::size_t gone_ = 0;    // blocks, of all segments
  double mean_size_ = 0.0;  // of a segment when it is released
  double now_ = 0.0;
  double due_ = 0.0;  // no segment passes an edge before
  std::uint32_t tickets_ = 0;
  gittins::CountsByAge hits_{};  // blocks, since construction
  gittins::CountsByAge ghost_returns_{};
  gittins::CountsByAge evictions_{};

  bool releasing_ = false;
  Id open_ = kNone;             // the segment that the next block may join
  gittins::Request finishing_;  // whose blocks are released
  std::vector<Key> path_;       // and their keys
  std::size_t path_at_ = 0;     // where the last one was found
  std::size_t path_left_ = 0;   // steps that the search may take still
  Slot last_ = kNoSlot;         // released last
  std::uint32_t last_place_ = kUnplaced;

  std::vector<Found> found_;  // scratch

  struct Adopted;
  std::unique_ptr<Adopted> adopted_;  // of a snapshot, until its blocks are placed
};

}  // namespace eviction
