// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork

#include "shadow_host.h"

#include <bit>
#include <chrono>
#include <utility>

namespace eviction {
namespace {

// An event is a header, a fixed number of words, and keys. The header holds the
// kind in its low byte, then the number of words before the keys, then of keys.
constexpr std::uint64_t header_of(std::uint64_t kind, std::size_t head, std::size_t keys) {
  return kind | std::uint64_t{head} << 8 | std::uint64_t{keys} << 16;
}
std::uint64_t bits(double value) { return std::bit_cast<std::uint64_t>(value); }
double number(std::uint64_t word) { return std::bit_cast<double>(word); }

// The thread looks by itself this often: waking it for each event would cost the
// scheduler a system call.
constexpr auto kNap = std::chrono::milliseconds(5);
constexpr std::size_t kWakeWords = std::size_t{1} << 16;

}  // namespace

ShadowHost::ShadowHost(std::uint32_t num_blocks, std::uint32_t block_size, std::vector<Candidate> candidates,
                       Windows windows, Options options, RecomputeCost cost, const std::optional<HoleRule>& holes)
    : options_(options),
      shadows_(num_blocks, block_size, std::move(candidates), std::move(windows), cost, holes),
      bytes_(shadows_.bytes()),
      models_(models()) {
  if (options_.threaded) thread_ = std::thread([this] { run(); });
}

ShadowHost::~ShadowHost() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void ShadowHost::admit(Serial serial, std::span<const Key> keys, std::uint32_t prompt_tokens, std::uint32_t num_blocks,
                       double now) {
  const std::uint64_t head[] = {serial, prompt_tokens, num_blocks, bits(now)};
  post(Kind::kAdmit, head, keys);
}
void ShadowHost::grow(Serial serial, std::uint32_t num_blocks) {
  const std::uint64_t head[] = {serial, num_blocks};
  post(Kind::kGrow, head);
}
void ShadowHost::finish(Serial serial, std::span<const Key> keys, double now) {
  const std::uint64_t head[] = {serial, bits(now)};
  post(Kind::kFinish, head, keys);
}
void ShadowHost::advance(double now) {
  const std::uint64_t head[] = {bits(now)};
  post(Kind::kAdvance, head);
}
void ShadowHost::reset() { post(Kind::kReset, {}); }

std::uint64_t ShadowHost::mark(std::uint32_t replay_blocks) {
  const std::uint64_t head[] = {++marks_, replay_blocks};
  post(Kind::kMark, head);
  wake_.notify_one();
  return marks_;
}

std::optional<ShadowHost::Answer> ShadowHost::poll_answer() {
  const std::lock_guard lock(mutex_);
  return std::exchange(answer_, std::nullopt);
}

void ShadowHost::ask_for_plan(std::size_t candidate, std::uint32_t num_slots, std::vector<Resident> residents) {
  {
    const std::lock_guard lock(mutex_);
    if (plan_.has_value()) leftovers_.push_back({std::move(plan_->next), std::move(plan_->items), {}, {}});
    if (plan_request_.has_value()) leftovers_.push_back({nullptr, {}, std::move(plan_request_->residents), {}});
    plan_ = std::nullopt;
    plan_request_ = {++plans_, candidate, num_slots, std::move(residents)};
  }
  const std::uint64_t head[] = {plans_};
  post(Kind::kPlan, head);
  wake_.notify_one();
}

std::optional<HandOverPlan> ShadowHost::poll_plan() {
  const std::lock_guard lock(mutex_);
  return std::exchange(plan_, std::nullopt);
}

void ShadowHost::discard(Leftovers leftovers) {
  if (!options_.threaded) return;
  const std::lock_guard lock(mutex_);
  leftovers_.push_back(std::move(leftovers));
}

std::string ShadowHost::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void ShadowHost::drain() {
  if (!options_.threaded) return;
  std::unique_lock lock(mutex_);
  wake_.notify_one();
  idle_.wait(lock, [this] { return (inbox_.empty() && !working_) || !failure_.empty(); });
}

// False for what is left out. In the engine a serial is not used again.
bool ShadowHost::passes(Kind kind, std::span<const std::uint64_t> head, std::size_t keys) {
  switch (kind) {
    case Kind::kAdmit:
      if (!full(keys)) return true;
      ++dropped_;
      left_out_.insert(head[0]);
      return false;
    case Kind::kGrow:  // told again a second later
    case Kind::kAdvance:
      return !full(0);
    case Kind::kFinish:
      return left_out_.empty() || left_out_.erase(head[0]) == 0;
    default:
      return true;
  }
}

void ShadowHost::post(Kind kind, std::span<const std::uint64_t> head, std::span<const Key> keys) {
  std::size_t pending = 0;
  {
    const std::lock_guard lock(mutex_);
    if (!failure_.empty()) return;
    if (!passes(kind, head, keys.size())) return;
    inbox_.push_back(header_of(static_cast<std::uint64_t>(kind), head.size(), keys.size()));
    inbox_.insert(inbox_.end(), head.begin(), head.end());
    inbox_.insert(inbox_.end(), keys.begin(), keys.end());
    pending = inbox_.size();
  }
  if (!options_.threaded) {
    process(std::exchange(inbox_, {}));
  } else if (pending > kWakeWords) {
    wake_.notify_one();
  }
}

void ShadowHost::run() {
  std::vector<std::uint64_t> words;
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (inbox_.empty()) {
      working_ = false;
      idle_.notify_all();
      wake_.wait_for(lock, kNap);
      continue;
    }
    working_ = true;
    words.clear();
    words.swap(inbox_);
    std::vector<Leftovers> garbage = std::exchange(leftovers_, {});
    lock.unlock();
    garbage.clear();
    process(words);
    lock.lock();
  }
}

void ShadowHost::process(const std::vector<std::uint64_t>& words) {
  const auto started = std::chrono::steady_clock::now();
  try {
    for (std::size_t at = 0; at < words.size() && !stopping_;) {
      const std::uint64_t header = words[at];
      const std::size_t head = header >> 8 & 0xff;
      const std::size_t keys = header >> 16;
      handle(static_cast<Kind>(header & 0xff), words.data() + at + 1, {words.data() + at + 1 + head, keys});
      at += 1 + head + keys;
    }
  } catch (const std::exception& error) {
    fail(error.what());
  }
  busy_nanoseconds_ += static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - started).count());
}

void ShadowHost::handle(Kind kind, const std::uint64_t* head, std::span<const Key> keys) {
  switch (kind) {
    case Kind::kAdmit:
      if (options_.record_window) window_.insert(window_.end(), keys.begin(), keys.end());
      shadows_.admit(head[0], keys, static_cast<std::uint32_t>(head[1]), static_cast<std::uint32_t>(head[2]),
                     number(head[3]));
      break;
    case Kind::kGrow:
      shadows_.grow(head[0], static_cast<std::uint32_t>(head[1]));
      break;
    case Kind::kFinish:
      shadows_.finish(head[0], keys, number(head[1]));
      break;
    case Kind::kAdvance:
      shadows_.advance(number(head[0]));
      break;
    case Kind::kReset:
      shadows_.reset();
      window_.clear();
      break;
    case Kind::kMark:
      answer(head[0], static_cast<std::uint32_t>(head[1]));
      break;
    case Kind::kPlan:
      plan(head[0]);
      break;
  }
}

void ShadowHost::plan(std::uint64_t number) {
  std::optional<PlanRequest> request;
  {
    const std::lock_guard lock(mutex_);
    if (!plan_request_.has_value() || plan_request_->number != number) return;  // asked anew since
    request = std::exchange(plan_request_, std::nullopt);
  }
  HandOverPlan plan = shadows_.plan(request->candidate, request->num_slots, std::move(request->residents));
  const std::lock_guard lock(mutex_);
  if (!plan_request_.has_value()) plan_ = std::move(plan);
}

void ShadowHost::answer(std::uint64_t mark, std::uint32_t replay_blocks) {
  const ShadowSet::Counts& counts = shadows_.counts();
  Answer answer{mark, counts.query_tokens, counts.hit_tokens, counts.query_cost, counts.saved};
  if (replay_blocks > 0) {
    answer.query_tokens = window_.size();
    for (std::size_t i = 0; i < shadows_.size(); ++i) {
      const Candidate& candidate = shadows_.candidate(i);
      UnpinnedCache cache(make_policy(candidate.name, replay_blocks, candidate.parameters));
      answer.hit_tokens[i] = 0;
      for (const Key key : window_) answer.hit_tokens[i] += cache.access(key);
    }
    window_.clear();
  }
  std::vector<std::vector<double>> learnt = models();
  const std::lock_guard lock(mutex_);
  answer_ = std::move(answer);
  models_ = std::move(learnt);
}

std::vector<std::vector<double>> ShadowHost::models() const {
  std::vector<std::vector<double>> learnt;
  for (std::size_t i = 0; i < shadows_.size(); ++i) learnt.push_back(shadows_.model(i));
  return learnt;
}

std::vector<double> ShadowHost::model(std::size_t candidate) const {
  const std::lock_guard lock(mutex_);
  return models_.at(candidate);
}

bool ShadowHost::load_model(std::size_t candidate, std::span<const double> model) {
  const std::lock_guard lock(mutex_);  // the first event hands it on to the thread
  if (!shadows_.load_model(candidate, model)) return false;
  models_.at(candidate) = shadows_.model(candidate);
  return true;
}

void ShadowHost::fail(const char* why) {
  const std::lock_guard lock(mutex_);
  failure_ = *why == '\0' ? "unknown error" : why;
  inbox_.clear();
  idle_.notify_all();
}

}  // namespace eviction
