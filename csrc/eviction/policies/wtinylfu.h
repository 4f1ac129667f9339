// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
//
// W-TinyLFU: Einziger, Friedman, Manes, "TinyLFU: a highly efficient cache admission
// policy", ACM TOS 13(4), 2017, with the hill climber of Einziger, Eytan, Friedman,
// Manes, "Adaptive software cache management", Middleware'18. New blocks enter a small
// window, an LRU queue. What leaves it must be used more often than what the main part
// would evict for it; a sketch counts uses, of blocks that are gone too. The main part
// is an SLRU: of its two segments, that of blocks which were not hit is evicted from.
//
// Every ten pools' worth of accesses the climber moves the border between window and
// main part: on as it did if the hit rate rose, back if it fell, by a step that shrinks
// from a sixteenth of the pool and starts anew when the hit rate changes by 5 points.
//
// Where this differs from the papers, and why:
// - Victims are chosen before the new block is known. So the duel is not between it and
//   a victim, but between the oldest of the window and the oldest of the main part. The
//   winner moves to the main part.
// - Between equals the one of the main part goes, the older one, and the other stays
//   where it is; in the papers the candidate goes. Else the head of a request, which is
//   released last and so stands in the window, would go before its tail.
// - The main part takes what the window has no room for without a duel while it has
//   less than its share of the pool. Blocks in use keep their room in it.
// - A block is promoted when it comes back after a request hit it; a pin that is no hit
//   puts it at the end of the queue it was in.
// - Against an attacker who fills the sketch, one in 128 losers that were used more than
//   five times wins all the same, as in Caffeine; drawn by the seed and the number of
//   such duels.
//
// - In a hand-over, blocks that the shadow does not know enter the main part.
//
// No ghosts. The sketch takes 8 to 16 bytes a block.
#pragma once

#include <algorithm>
#include <deque>

#include "../frequency_sketch.h"
#include "../policy.h"
#include "../queue_set.h"
#include "../splitmix.h"

namespace eviction {

class WTinyLfu final : public Policy {
 public:
  struct Config {
    double window_ratio = 0.01;    // of the pool, one block at least, (0, 1)
    double protected_ratio = 0.8;  // of the main part, (0, 1)
    bool climb = true;
    std::uint32_t seed = 0;
  };

  WTinyLfu(std::uint32_t num_slots, const Config& config)
      : Policy(num_slots), config_(config), queues_(links_), sketch_(num_slots) {
    reset_shares();
  }

  Traits traits() const override { return {.moves_on_hit = true}; }
  std::uint32_t size() const override { return queues_.size(); }
  std::size_t bytes() const override { return base_bytes() + queues_.bytes() + sketch_.bytes(); }
  std::uint32_t window_limit() const { return window_limit_; }

  void insert(Slot slot, Key key, const BlockInfo&) override {
    learn(slot, key);
    queues_.set_note(slot, 0);
    queues_.assign(slot, adopting_ ? kProbation : kWindow);
    num_main_ += adopting_;
    queues_.enqueue(slot);
    keep_shares();
  }
  void reinsert(Slot slot) override {
    if (queues_.note(slot) == kHit) {
      queues_.set_note(slot, 0);
      if (queues_.queue_of(slot) == kProbation) queues_.assign(slot, kProtected);
    }
    queues_.enqueue(slot);
    keep_shares();
  }
  void take(Slot slot) override { queues_.dequeue(slot); }

  void forget(Slot slot) override {
    if (knows(slot) && queues_.queue_of(slot) != kWindow) --num_main_;
    queues_.drop(slot);
    unlearn(slot);
  }
  void prefetch(Key key, Slot) const override { sketch_.prefetch(key); }

  std::vector<Slot> peek(std::size_t n) const override;

  void clear() override {
    queues_.clear();
    sketch_.clear();
    adopting_ = false;
    unlearn_all();
    num_main_ = 0;
    draws_ = 0;
    accesses_ = hits_ = 0;
    last_rate_ = 0.0;
    reset_shares();
    ghost_hits_ = 0;
  }

  void check() const override {
    queues_.check([this](Slot slot) { return knows(slot); });
    std::uint32_t main = 0;
    for (Slot slot = 0; slot < num_slots(); ++slot) main += knows(slot) && queues_.queue_of(slot) != kWindow;
    require(main == num_main_, "wtinylfu: wrong size of the main part");
    require(window_limit_ >= 1 && window_limit_ + protected_limit_ <= std::max(1u, num_slots()),
            "wtinylfu: the shares do not add up");
  }

  void admit(const Admission& request) override {
    adopting_ = false;
    for (std::size_t i = 0; i < request.keys.size(); ++i) {
      if (i + kAheadKeys < request.keys.size()) sketch_.prefetch(request.keys[i + kAheadKeys]);
      sketch_.add(request.keys[i]);
      ++accesses_;
      if (request.slots[i] == kNoSlot) continue;
      ++hits_;
      queues_.set_note(request.slots[i], kHit);
    }
    if (accesses_ >= 10 * std::uint64_t{num_slots()}) climb();
  }

  Snapshot snapshot() const override {
    Snapshot out;
    queues_.each([this](Slot slot) { return knows(slot); },
                 [&](Slot slot) { out.entries.push_back({keys_[slot], queues_.queue_of(slot), queues_.note(slot)}); });
    out.scalars = {static_cast<double>(window_limit_),
                   static_cast<double>(protected_limit_),
                   step_,
                   last_rate_,
                   static_cast<double>(accesses_),
                   static_cast<double>(hits_),
                   static_cast<double>(draws_)};
    sketch_.save(out.scalars);
    return out;
  }
  void adopt_history(const Snapshot& snapshot) override {
    const std::vector<double>& in = snapshot.scalars;
    window_limit_ = static_cast<std::uint32_t>(in.at(0));
    protected_limit_ = static_cast<std::uint32_t>(in.at(1));
    step_ = in.at(2);
    last_rate_ = in.at(3);
    accesses_ = static_cast<std::uint64_t>(in.at(4));
    hits_ = static_cast<std::uint64_t>(in.at(5));
    draws_ = static_cast<std::uint64_t>(in.at(6));
    sketch_.load(&in.at(7));
    adopting_ = true;
  }
  // The shares are left alone: while the blocks come one by one they mean nothing.
  void place(Slot slot, const Snapshot::Entry& known, bool evictable) override {
    learn(slot, known.key);
    queues_.assign(slot, static_cast<std::uint8_t>(known.queue));
    queues_.set_note(slot, static_cast<std::uint8_t>(known.value));
    num_main_ += known.queue != kWindow;
    if (evictable) queues_.enqueue(slot);
  }

 protected:
  Slot choose() override {
    const Slot candidate = queues_[kWindow].front();
    const Slot resident = queues_[queues_[kProbation].empty() ? kProtected : kProbation].front();
    if (candidate == kNoSlot && resident == kNoSlot) return kNoSlot;
    const Outcome outcome = duel(candidate, resident, num_main_, draws_);
    if (outcome == Outcome::kCandidateGoes) {
      queues_.drop(candidate);
      return candidate;
    }
    queues_.drop(resident);
    --num_main_;
    if (outcome == Outcome::kCandidateWins) {
      queues_.move(candidate, kProbation);
      ++num_main_;
    }
    return resident;
  }

 private:
  static constexpr std::uint8_t kWindow = 0;
  static constexpr std::uint8_t kProbation = 1;
  static constexpr std::uint8_t kProtected = 2;
  static constexpr std::uint8_t kHit = 1;  // a request hit it since it was queued
  static constexpr std::size_t kAheadKeys = 8;
  enum class Outcome { kCandidateGoes, kCandidateWins, kResidentGoes };

  // `main`: blocks of the main part, those in use too.
  Outcome duel(Slot candidate, Slot resident, std::uint32_t main, std::uint64_t& draws) const {
    if (resident == kNoSlot) return Outcome::kCandidateGoes;
    // The climber gave the window more room: the main part makes it.
    if (candidate == kNoSlot || main > num_slots() - window_limit_) return Outcome::kResidentGoes;
    const std::uint32_t challenge = sketch_.count(keys_[candidate]);
    const std::uint32_t defence = sketch_.count(keys_[resident]);
    if (challenge > defence) return Outcome::kCandidateWins;
    if (challenge == defence) return Outcome::kResidentGoes;
    const bool lucky = challenge > 5 && split_mix_below(config_.seed, draws++, 128) == 0;
    return lucky ? Outcome::kCandidateWins : Outcome::kCandidateGoes;
  }
  void keep_shares() {
    while (queues_[kProtected].size() > protected_limit_) queues_.move(queues_[kProtected].front(), kProbation);
    while (queues_[kWindow].size() > window_limit_ && num_main_ < num_slots() - window_limit_) {
      queues_.move(queues_[kWindow].front(), kProbation);
      ++num_main_;
    }
  }
  void reset_shares() {
    window_limit_ = std::max(1u, static_cast<std::uint32_t>(config_.window_ratio * num_slots()));
    const std::uint32_t main = num_slots() - std::min(num_slots(), window_limit_);
    protected_limit_ = static_cast<std::uint32_t>(config_.protected_ratio * main);
    step_ = kStep * num_slots();
  }
  void climb() {
    const double rate = static_cast<double>(hits_) / static_cast<double>(accesses_);
    const double change = rate - last_rate_;
    accesses_ = hits_ = 0;
    last_rate_ = rate;
    if (!config_.climb) return;
    const double amount = change >= 0 ? step_ : -step_;
    const bool anew = change >= 0.05 || change <= -0.05;
    step_ = anew ? (amount >= 0 ? kStep : -kStep) * num_slots() : 0.98 * amount;
    if (amount >= 0) {
      const std::uint32_t more = std::min(static_cast<std::uint32_t>(amount), protected_limit_);
      window_limit_ += more;
      protected_limit_ -= more;
    } else {
      const std::uint32_t less = std::min(static_cast<std::uint32_t>(-amount), window_limit_ - 1);
      window_limit_ -= less;
      protected_limit_ += less;
    }
  }

  static constexpr double kStep = 0.0625;  // of the pool

  Config config_;
  QueueSet<3> queues_;
  FrequencySketch sketch_;
  bool adopting_ = false;              // new blocks enter the main part, ahead of what the shadow knows
  std::uint32_t num_main_ = 0;         // blocks of the main part, those in use too
  std::uint32_t window_limit_ = 1;     // blocks
  std::uint32_t protected_limit_ = 0;  // blocks
  double step_ = 0.0;                  // blocks, which way the climber goes next
  double last_rate_ = 0.0;
  std::uint64_t accesses_ = 0;  // since the climber last went
  std::uint64_t hits_ = 0;
  std::uint64_t draws_ = 0;
};

// Runs the duels on the side: pointers into the queues, and a lane for what would have
// been moved to the end of the probation.
inline std::vector<Slot> WTinyLfu::peek(std::size_t n) const {
  std::vector<Slot> out;
  Slot candidate = queues_[kWindow].front();
  Slot probation = queues_[kProbation].front();
  Slot guarded = queues_[kProtected].front();
  std::deque<Slot> moved;
  std::uint32_t main = num_main_;
  std::uint64_t draws = draws_;
  while (out.size() < n) {
    const Slot resident = probation != kNoSlot ? probation : !moved.empty() ? moved.front() : guarded;
    if (candidate == kNoSlot && resident == kNoSlot) break;
    const Outcome outcome = duel(candidate, resident, main, draws);
    if (outcome == Outcome::kCandidateGoes) {
      out.push_back(candidate);
      candidate = queues_[kWindow].next(candidate);
      continue;
    }
    out.push_back(resident);
    --main;
    if (probation != kNoSlot) {
      probation = queues_[kProbation].next(probation);
    } else if (!moved.empty()) {
      moved.pop_front();
    } else {
      guarded = queues_[kProtected].next(guarded);
    }
    if (outcome == Outcome::kCandidateWins) {
      moved.push_back(candidate);
      candidate = queues_[kWindow].next(candidate);
      ++main;
    }
  }
  return out;
}

}  // namespace eviction
