// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
//
// Runs the shadows beside the engine. The scheduler writes each event as a few
// words into an inbox and goes on; one native thread, which never touches Python,
// takes the inbox and feeds the shadows. Answers come back when they are ready:
// the scheduler asks with `mark` or `ask_for_plan` and looks again at a later step,
// it never waits.
//
// The inbox is bounded. When it is full, requests are left out (and counted), with
// all that happens to them, so that a slow shadow costs accuracy and never time. The
// ends of the others always pass, or a shadow would hold their blocks for ever. An
// exception in a shadow stops all of them and is reported; serving does not depend on
// them.
//
// Without a thread everything happens within the call; the harness and the tests
// use that, because it is deterministic.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_set>
#include <vector>

#include "shadow_set.h"
#include "unpinned.h"

namespace eviction {

class ShadowHost {
 public:
  struct Options {
    bool threaded = true;
    // Keep the keys of admitted prompts, for `mark` with a capacity.
    bool record_window = false;
    std::size_t max_pending_words = std::size_t{1} << 24;  // 128 MiB
  };
  struct Answer {
    std::uint64_t mark;
    std::uint64_t query_tokens;
    std::vector<std::uint64_t> hit_tokens;
    double query_cost;  // see ShadowSet::Counts
    std::vector<double> saved;
  };

  ShadowHost(std::uint32_t num_blocks, std::uint32_t block_size, std::vector<Candidate> candidates, Windows windows,
             Options options, RecomputeCost cost = {}, const std::optional<HoleRule>& holes = {});
  ~ShadowHost();
  ShadowHost(const ShadowHost&) = delete;
  ShadowHost& operator=(const ShadowHost&) = delete;

  // ---- Events, in the engine's order. ----
  void admit(Serial serial, std::span<const Key> keys, std::uint32_t prompt_tokens, std::uint32_t num_blocks,
             double now);
  void grow(Serial serial, std::uint32_t num_blocks);
  void finish(Serial serial, std::span<const Key> keys, double now);
  void advance(double now);
  void reset();

  // ---- Questions. ----

  // Asks for the totals after all events so far; returns the number that the answer
  // will carry. With `replay_blocks`, its tokens are instead blocks, of a cold replay of
  // the keys since the last such mark on caches of that many blocks.
  std::uint64_t mark(std::uint32_t replay_blocks = 0);
  std::optional<Answer> poll_answer();
  // Asks for a plan to hand over to a candidate. Only the one that was asked for last is
  // given out.
  void ask_for_plan(std::size_t candidate, std::uint32_t num_slots, std::vector<Resident> residents);
  std::optional<HandOverPlan> poll_plan();
  // Frees what a hand-over left, on the thread.
  void discard(Leftovers leftovers);

  // What a candidate has learnt, as of the last mark that was answered; see policy.h.
  std::vector<double> model(std::size_t candidate) const;
  // Before the first event. Where it is false the candidate learns anew.
  bool load_model(std::size_t candidate, std::span<const double> model);

  std::string failure() const;
  std::uint64_t dropped() const { return dropped_; }
  double busy_seconds() const { return static_cast<double>(busy_nanoseconds_.load()) * 1e-9; }
  std::size_t bytes() const { return bytes_; }
  // Waits until the inbox is empty; for tests.
  void drain();
  // For tests, without a thread only.
  ShadowSet& shadows() { return shadows_; }

 private:
  enum class Kind : std::uint64_t { kAdmit, kGrow, kFinish, kAdvance, kReset, kMark, kPlan };
  struct PlanRequest {
    std::uint64_t number;
    std::size_t candidate;
    std::uint32_t num_slots;
    std::vector<Resident> residents;
  };

  bool full(std::size_t words) const { return inbox_.size() + words > options_.max_pending_words; }
  bool passes(Kind kind, std::span<const std::uint64_t> head, std::size_t keys);
  void post(Kind kind, std::span<const std::uint64_t> head, std::span<const Key> keys = {});
  void run();
  void process(const std::vector<std::uint64_t>& words);
  void handle(Kind kind, const std::uint64_t* head, std::span<const Key> keys);
  void plan(std::uint64_t number);
  void answer(std::uint64_t mark, std::uint32_t replay_blocks);
  std::vector<std::vector<double>> models() const;
  void fail(const char* why);

  Options options_;
  ShadowSet shadows_;
  std::vector<Key> window_;
  std::size_t bytes_;

  mutable std::mutex mutex_;  // guards all below that is not atomic
  std::condition_variable wake_;
  std::condition_variable idle_;
  std::vector<std::uint64_t> inbox_;
  std::optional<PlanRequest> plan_request_;
  std::vector<Leftovers> leftovers_;
  std::optional<Answer> answer_;
  std::optional<HandOverPlan> plan_;
  std::vector<std::vector<double>> models_;
  std::string failure_;
  bool working_ = false;
  std::unordered_set<Serial> left_out_;  // requests whose admission was, until they end

  // Of the scheduler's thread.
  std::uint64_t marks_ = 0;
  std::uint64_t plans_ = 0;

  std::atomic<bool> stopping_{false};
  std::atomic<std::uint64_t> dropped_{0};
  std::atomic<std::uint64_t> busy_nanoseconds_{0};
  std::thread thread_;
};

}  // namespace eviction
