// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork

#include "simulator.h"

#include <algorithm>
#include <limits>

namespace eviction {

double Simulator::next_time() const {
  const double never = std::numeric_limits<double>::infinity();
  const double arrival = next_ < trace_.arrivals.size() ? trace_.arrivals[next_] : never;
  return std::min(arrival, events_.empty() ? never : events_.top().time);
}

void Simulator::run_until(double time) {
  while (!done()) {
    const double now = next_time();
    if (now >= time) return;
    pool_.queue().advance(now);
    if (shadows_ != nullptr) shadows_->advance(now);
    // At the same time, ends go first: they make room.
    if (!events_.empty() && events_.top().time <= now) {
      const Event event = events_.top();
      events_.pop();
      handle(event);
      if (event.token < output_tokens(event.request)) continue;
    } else {
      waiting_.push_back(next_++);
    }
    admit_waiting(now);
  }
}

// Puts down when the request, which has sampled so many tokens, next takes or fills
// a block, or ends. The keys and values of token j lie at place prompt + j - 1.
void Simulator::expect(std::size_t request, double origin, std::uint32_t sampled) {
  const std::uint32_t place = (trace_.prompt_tokens[request] + sampled) % block_size_;
  const std::uint32_t token = std::min(sampled + (place == 0 ? 1 : block_size_ - place), output_tokens(request));
  events_.push({origin + token * service_.decode_seconds, request, origin, token});
}

void Simulator::handle(const Event& event) {
  const std::size_t request = event.request;
  const bool last = event.token == output_tokens(request);
  // The token that is sampled last has no keys and values.
  const std::uint32_t tokens = trace_.prompt_tokens[request] + event.token - last;
  const std::span<const Key> keys = keys_of(request, std::min(tokens / block_size_, all_blocks(request)));
  if (last) {
    pool_.finish(request, keys, event.time);
    if (shadows_ != nullptr) shadows_->finish(request, keys, event.time);
    --running_;
    return;
  }
  const std::uint32_t num_blocks = (tokens + block_size_ - 1) / block_size_;
  pool_.grow(request, num_blocks, keys);
  if (shadows_ != nullptr) shadows_->grow(request, num_blocks, keys);
  expect(request, event.origin, event.token);
}

void Simulator::admit_waiting(double now) {
  while (!waiting_.empty() && running_ < service_.max_running) {
    const std::size_t request = waiting_.front();
    const std::uint32_t prompt_tokens = trace_.prompt_tokens[request];
    const std::uint32_t prompt_blocks = std::min(prompt_tokens / block_size_, all_blocks(request));
    const std::uint32_t num_blocks = (prompt_tokens + block_size_ - 1) / block_size_;
    const std::span<const Key> keys = keys_of(request, prompt_blocks);
    const std::uint32_t limit = prompt_tokens > 0 ? (prompt_tokens - 1) / block_size_ : 0;
    // As vLLM, which takes no request that is longer than its pool.
    const std::uint64_t tokens = std::uint64_t{prompt_tokens} + output_tokens(request);
    if (tokens > std::uint64_t{pool_.num_blocks()} * block_size_) {
      ++counts_.refused;
      waiting_.pop_front();
      continue;
    }
    const Pool::Admitted admitted = pool_.admit(request, keys, limit, num_blocks, now);
    if (!admitted.fits) return;
    waiting_.pop_front();
    if (shadows_ != nullptr) shadows_->admit(request, keys, prompt_tokens, num_blocks, now);
    if (recorded_ != nullptr) recorded_->insert(recorded_->end(), keys.begin(), keys.end());
    const std::uint64_t hit_tokens = std::uint64_t{admitted.hits} * block_size_;
    ++counts_.requests;
    counts_.query_blocks += prompt_blocks;
    counts_.hit_blocks += admitted.hits;
    hits_[request] = admitted.hits;
    holes_[request] = admitted.holes + (admitted.hits + admitted.hole_blocks < prompt_blocks);
    counts_.filled_holes += admitted.holes;
    counts_.filled_blocks += admitted.hole_blocks;
    counts_.saved += admitted.saved;
    counts_.query_tokens += prompt_tokens;
    counts_.hit_tokens += hit_tokens;
    counts_.waited += now - trace_.arrivals[request];
    counts_.free_blocks += pool_.num_free();
    const double prefill = static_cast<double>(prompt_tokens - hit_tokens) / service_.prefill_rate;
    ++running_;
    expect(request, now + service_.base + prefill, 0);
  }
}

void Simulator::hand_over(ShadowSet& shadows, std::size_t candidate) {
  std::vector<Resident> residents;
  pool_.queue().copy_residents(0, pool_.num_blocks(), residents);
  pool_.queue().begin_hand_over(shadows.plan(candidate, pool_.num_blocks(), std::move(residents)));
  pool_.queue().continue_hand_over(std::numeric_limits<std::size_t>::max());
  pool_.queue().take_leftovers();
  choose_holes();
}

}  // namespace eviction
