// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
//
// What the policy keeps of requests: of those that run, what their blocks will be like
// when they are released; and of *templates*, what became of the sessions that began
// with them. A template is the deepest block that several sessions left at or below
// (a system prompt, an application's preamble): sessions that share one behave alike.
//
// Both are tables of fixed size. The oldest running request is forgotten when there are
// too many, as one whose end is never told; then its blocks are like new ones. Templates
// share an entry when their keys fall on the same.
#pragma once

#include <array>
#include <vector>

#include "../../key_index.h"
#include "attributes.h"
#include "block_tree.h"

namespace eviction::gittins {

struct Request {
  Serial serial = 0;
  double admitted = 0.0;      // seconds
  std::uint32_t prompt = 0;   // blocks; 0: nothing is known of the request
  std::uint32_t matched = 0;  // blocks that were known, resident or not
  Key stem_key = kNoKey;      // the last block that it hit
  Slot stem = kNoSlot;
  Attributes fresh;          // of blocks that nobody had seen
  std::uint16_t origin = 0;  // template
  std::uint8_t num_returned = 0;
  struct Returned {
    std::uint32_t end;  // place on the path
    Attributes learnt;
  };
  std::array<Returned, 4> returned;  // parts that were remembered and are computed anew

  void add_returned(std::uint32_t end, Attributes learnt) {
    if (num_returned == returned.size()) --num_returned;
    returned[num_returned++] = {end, learnt};
  }
  // Of a block that it computed. The output is like the end of the prompt; but of a
  // session's first turn, which may end in what all sessions share, like a new block.
  Attributes learnt_at(std::uint32_t place) const {
    for (std::size_t i = 0; i < num_returned; ++i) {
      if (place < returned[i].end) return returned[i].learnt;
      if (place < prompt || prompt > returned[i].end) continue;
      Attributes output = returned[i].learnt;
      if (output.branches > 0 && fresh.uses <= 1) return fresh;
      output.branches = 0;
      return output;
    }
    return fresh;
  }
};

class RunningRequests {
 public:
  explicit RunningRequests(std::uint32_t capacity) : index_(capacity), requests_(capacity) { clear(); }

  std::size_t bytes() const { return index_.bytes() + requests_.size() * sizeof(Request); }
  Request* find(Serial serial) {
    const std::uint32_t at = index_.find(serial, [this](std::uint32_t i) { return requests_[i].serial; });
    return at == KeyIndex::kAbsent ? nullptr : &requests_[at];
  }
  // Of a serial that is known already, the later admission counts.
  void add(const Request& request) {
    if (Request* known = find(request.serial)) {
      *known = request;
      return;
    }
    while (index_.size() < requests_.size() && taken_[next_]) step();
    if (taken_[next_]) index_.erase_at(requests_[next_].serial, next_);
    requests_[next_] = request;
    taken_[next_] = true;
    index_.insert(request.serial, next_);
    step();
  }
  void remove(Serial serial) {
    const std::uint32_t at = index_.erase(serial, [this](std::uint32_t i) { return requests_[i].serial; });
    if (at != KeyIndex::kAbsent) taken_[at] = false;
  }
  // A running request that hit this block last of all, or null.
  const Request* with_stem(Key key) const {
    for (std::uint32_t at = 0; at < requests_.size(); ++at) {
      if (taken_[at] && requests_[at].stem_key == key) return &requests_[at];
    }
    return nullptr;
  }
  void clear() {
    index_.clear();
    taken_.assign(requests_.size(), false);
    next_ = 0;
  }

 private:
  void step() { next_ = next_ + 1 == requests_.size() ? 0 : next_ + 1; }

  KeyIndex index_;
  std::vector<Request> requests_;  // a ring
  std::vector<bool> taken_;
  std::uint32_t next_ = 0;
};

class Templates {
 public:
  struct Template {
    double ends = 0.0;     // requests that ended
    double returns = 0.0;  // and were continued
    double log_gaps = 0.0;
  };

  explicit Templates(std::uint32_t capacity) : templates_(capacity) {}

  std::size_t bytes() const { return templates_.size() * sizeof(Template); }
  // 0 is the template of requests without one.
  std::uint16_t id_of(Key key) const {
    const std::uint64_t hash = (key * 0x9e3779b97f4a7c15ull) >> 32;
    return static_cast<std::uint16_t>(1 + ((hash * (templates_.size() - 1)) >> 32));
  }
  const Template& operator[](std::uint16_t id) const { return templates_[id]; }
  void ended(std::uint16_t id) {
    Template& entry = templates_[id];
    entry = {kKept * entry.ends + 1.0, kKept * entry.returns, kKept * entry.log_gaps};
  }
  void returned(std::uint16_t id, double log_gap) {
    templates_[id].returns += 1.0;
    templates_[id].log_gaps += log_gap;
  }
  void clear() { templates_.assign(templates_.size(), {}); }

  void save(std::vector<double>& out) const {
    for (const Template& entry : templates_) out.insert(out.end(), {entry.ends, entry.returns, entry.log_gaps});
  }
  void load(const double* in) {
    for (Template& entry : templates_) {
      entry = {in[0], in[1], in[2]};
      in += 3;
    }
  }
  std::size_t saved_size() const { return 3 * templates_.size(); }

 private:
  static constexpr double kKept = 0.98;

  std::vector<Template> templates_;
};

}  // namespace eviction::gittins
