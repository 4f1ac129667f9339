// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork

#include "simulator.h"

#include <algorithm>
#include <limits>

namespace eviction {

double Simulator::next_time() const {
  const double never = std::numeric_limits<double>::infinity();
  const double arrival = next_ < trace_.arrivals.size() ? trace_.arrivals[next_] : never;
  return std::min(arrival, running_.empty() ? never : running_.top().time);
}

void Simulator::run_until(double time) {
  while (!done()) {
    const double now = next_time();
    if (now >= time) return;
    // At the same time, ends go first: they make room.
    if (!running_.empty() && running_.top().time <= now) {
      const Event event = running_.top();
      running_.pop();
      handle(event);
      if (event.token < output_tokens(event.request)) continue;
    } else {
      waiting_.push_back(next_++);
    }
    admit_waiting(now);
  }
}

// Puts down when the request, which has sampled so many tokens, takes its next block
// or ends. The keys and values of token j lie at place prompt + j - 1.
void Simulator::expect(std::size_t request, double origin, std::uint32_t sampled) {
  const std::uint32_t last = output_tokens(request);
  const std::uint32_t place = (trace_.prompt_tokens[request] + sampled) % block_size_;
  std::uint32_t token = sampled + 1 + (place == 0 ? 0 : block_size_ - place);
  if (token >= last) token = last;
  running_.push({origin + token * service_.decode_seconds, request, origin, token});
}

void Simulator::handle(const Event& event) {
  const std::size_t request = event.request;
  if (event.token < output_tokens(request)) {
    const std::uint32_t blocks = (trace_.prompt_tokens[request] + event.token - 1) / block_size_ + 1;
    pool_.grow(request, blocks);
    if (shadows_ != nullptr) shadows_->grow(request, blocks);
    expect(request, event.origin, event.token);
    return;
  }
  const std::uint32_t filled =
      std::min((trace_.prompt_tokens[request] + event.token - 1) / block_size_, all_blocks(request));
  const std::span<const Key> keys = keys_of(request, filled);
  pool_.finish(request, keys, event.time);
  if (shadows_ != nullptr) shadows_->finish(request, keys, event.time);
  --num_running_;
}

void Simulator::admit_waiting(double now) {
  while (!waiting_.empty() && num_running_ < service_.max_running) {
    const std::size_t request = waiting_.front();
    const std::uint32_t prompt_tokens = trace_.prompt_tokens[request];
    const std::uint32_t prompt_blocks = std::min(prompt_tokens / block_size_, all_blocks(request));
    const std::uint32_t num_blocks = (prompt_tokens + block_size_ - 1) / block_size_;
    const std::span<const Key> keys = keys_of(request, prompt_blocks);
    const std::uint32_t limit = prompt_tokens > 0 ? (prompt_tokens - 1) / block_size_ : 0;
    const Pool::Admitted admitted = pool_.admit(request, keys, limit, num_blocks, now);
    if (!admitted.fits) {
      if (!running_.empty()) return;
      ++counts_.refused;  // nothing runs, and still it does not fit
      waiting_.pop_front();
      continue;
    }
    waiting_.pop_front();
    if (shadows_ != nullptr) shadows_->admit(request, keys, prompt_tokens, num_blocks, now);
    if (recorded_ != nullptr) recorded_->insert(recorded_->end(), keys.begin(), keys.end());
    const std::uint64_t hit_tokens = std::uint64_t{admitted.hits} * block_size_;
    ++counts_.requests;
    counts_.query_blocks += prompt_blocks;
    counts_.hit_blocks += admitted.hits;
    counts_.query_tokens += prompt_tokens;
    counts_.hit_tokens += hit_tokens;
    counts_.waited += now - trace_.arrivals[request];
    counts_.free_blocks += pool_.num_free();
    const double prefill = static_cast<double>(prompt_tokens - hit_tokens) / service_.prefill_rate;
    ++num_running_;
    expect(request, now + service_.base + prefill, 0);
  }
}

void Simulator::hand_over(ShadowSet& shadows, std::size_t candidate) {
  std::vector<Resident> residents;
  pool_.queue().copy_residents(0, pool_.num_blocks(), residents);
  pool_.queue().begin_hand_over(shadows.plan(candidate, pool_.num_blocks(), std::move(residents)));
  pool_.queue().continue_hand_over(std::numeric_limits<std::size_t>::max());
  pool_.queue().take_leftovers();
}

}  // namespace eviction
