// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
//
// When will a group of blocks that was released together come back? A discrete-time
// hazard, the chance of a return in an age bucket given none before, as a logistic
// regression learnt online (AdaGrad) from returns and from buckets that passed
// without one. And what keeping the group is worth: its Gittins index, the largest
// over all times to give up of P(return by then) / E[seconds held].
//
// Seconds are seconds: nothing here depends on the size of the pool. The buckets
// reach beyond an hour, because a large pool keeps blocks for as long.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace eviction::gittins {

inline constexpr int kBuckets = 28;
inline constexpr int kZones = 4;
inline constexpr int kFeatures = 8;
inline constexpr int kValues = 24;
inline constexpr int kRatios = 20;

// Buckets of age, in seconds: [0, 0.1), then each 1.5 times as long as the last.
class Ages {
 public:
  Ages() {
    for (int i = 1; i < kBuckets; ++i) edges_[i] = 0.1 * std::pow(1.5, i - 1);
    for (int i = 0; i < kBuckets; ++i) {
      const double low = std::max(0.05, edges_[i]);
      const double high = i + 1 < kBuckets ? edges_[i + 1] : 1.5 * low;
      log_middle_[i] = 0.5 * (std::log(low) + std::log(high));
      // The last one is open; its length is a convention.
      length_[i] = i + 1 < kBuckets ? edges_[i + 1] - edges_[i] : 2.0 * edges_[i];
    }
  }
  double edge(int bucket) const { return edges_[bucket]; }
  double length(int bucket) const { return length_[bucket]; }
  double log_middle(int bucket) const { return log_middle_[bucket]; }
  int bucket(double age) const {
    return static_cast<int>(std::upper_bound(edges_.begin() + 1, edges_.end(), age) - edges_.begin()) - 1;
  }

 private:
  std::array<double, kBuckets> edges_{};
  std::array<double, kBuckets> length_{};
  std::array<double, kBuckets> log_middle_{};
};

// What the hazard of a group depends on.
struct Covariates {
  std::array<std::int8_t, kFeatures> values{};  // -1 where the feature is absent
  bool paced = false;                           // it was used again before, and
  bool shared = false;                          // requests left the path at it
  double log_gap = 0.0;                         // ln of its usual seconds to a reuse
};

class Hazard {
 public:
  Hazard() { clear(); }

  void clear() {
    base_.fill({std::log(0.1 / 0.9), 0.0});
    feature_.assign(kFeatures * kValues, {});
    zone_.assign(kFeatures * kValues * kZones, {});
    ratio_.fill({});
  }
  const Ages& ages() const { return ages_; }

  double operator()(const Covariates& x, int bucket) const { return 1.0 / (1.0 + std::exp(-logit(x, bucket))); }

  // Saw a group in the bucket: did it return there? `weight` 0 and above.
  void learn(const Covariates& x, int bucket, bool returned, double weight) {
    if (weight <= 0.0) return;
    const double gradient = ((*this)(x, bucket) - (returned ? 1.0 : 0.0)) * weight;
    base_[bucket].step(gradient, kRate);
    for (int f = 0; f < kFeatures; ++f) {
      if (x.values[f] < 0) continue;
      const int at = f * kValues + x.values[f];
      feature_[at].step(gradient, kRate);
      zone_[at * kZones + bucket / (kBuckets / kZones)].step(gradient, kZoneRate);
    }
    if (x.paced) ratio_[ratio(x, bucket)].step(gradient, kRate);
  }

  // Returns a second of holding the group from this bucket on.
  double index(const Covariates& x, int bucket) const {
    double stays = 1.0;
    double returns = 0.0;
    double held = 0.0;
    double best = 0.0;
    for (int j = bucket; j < kBuckets; ++j) {
      const double h = (*this)(x, j);
      returns += stays * h;
      held += stays * ages_.length(j) * (1.0 - h / 2.0);
      stays *= 1.0 - h;
      best = std::max(best, returns / held);
    }
    return best;
  }

  // All that was learnt, for another instance.
  void save(std::vector<double>& out) const {
    each(*this, [&](const Weight& weight) {
      out.push_back(weight.value);
      out.push_back(weight.squares);
    });
  }
  // What `save` appended, from `from` on. Returns false, changing nothing, when it
  // is of another size.
  bool load(const std::vector<double>& in, std::size_t from) {
    std::size_t count = 0;
    each(*this, [&](const Weight&) { count += 2; });
    if (in.size() != from + count) return false;
    each(*this, [&](Weight& weight) {
      weight.value = in[from++];
      weight.squares = in[from++];
    });
    return true;
  }

  std::size_t bytes() const { return (feature_.size() + zone_.size()) * sizeof(Weight); }

 private:
  static constexpr double kRate = 0.1;
  static constexpr double kZoneRate = 0.05;
  struct Weight {
    double value = 0.0;
    double squares = 0.0;
    void step(double gradient, double rate) {
      squares += gradient * gradient;
      value -= rate * gradient / std::sqrt(1.0 + squares);
    }
  };

  template <typename Self, typename Visit>
  static void each(Self& self, Visit visit) {
    for (auto& weight : self.base_) visit(weight);
    for (auto& weight : self.feature_) visit(weight);
    for (auto& weight : self.zone_) visit(weight);
    for (auto& weight : self.ratio_) visit(weight);
  }

  int ratio(const Covariates& x, int bucket) const {
    const int step = static_cast<int>(std::floor((ages_.log_middle(bucket) - x.log_gap) / 0.35)) + 9;
    return std::clamp(step, 0, kRatios - 1) + (x.shared ? kRatios : 0);
  }
  double logit(const Covariates& x, int bucket) const {
    double sum = base_[bucket].value;
    for (int f = 0; f < kFeatures; ++f) {
      if (x.values[f] < 0) continue;
      const int at = f * kValues + x.values[f];
      sum += feature_[at].value + zone_[at * kZones + bucket / (kBuckets / kZones)].value;
    }
    return x.paced ? sum + ratio_[ratio(x, bucket)].value : sum;
  }

  Ages ages_;
  std::array<Weight, kBuckets> base_;
  std::vector<Weight> feature_;
  std::vector<Weight> zone_;
  std::array<Weight, 2 * kRatios> ratio_;
};

}  // namespace eviction::gittins
