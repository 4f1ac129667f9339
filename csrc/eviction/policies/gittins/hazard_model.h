// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM eviction fork
//
// When will a group of blocks that was released together come back? A discrete-time
// hazard, the chance of a return in an age bucket given none before, as a logistic
// regression that is learnt online (AdaGrad: Duchi, Hazan, Singer, JMLR'11) from
// returns and from buckets that passed without one. Before it has learnt anything the
// hazard is a tenth in every bucket, which makes older groups less worth: LRU.
//
// Seconds are seconds: nothing here depends on the size of the pool. The buckets reach
// beyond an hour, because a large pool keeps blocks for as long.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace eviction::gittins {

inline constexpr int kBuckets = 28;
inline constexpr int kZones = 4;  // of seven buckets each
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
  std::array<std::int8_t, kFeatures> values{-1, -1, -1, -1, -1, -1, -1, -1};  // -1: absent
  bool paced = false;                                                         // it was used again before, and
  bool shared = false;                                                        // requests left the path at it
  float log_gap = 0.0f;                                                       // ln of its usual seconds to a reuse
};

using Hazards = std::array<double, kBuckets>;
using CountsByAge = std::array<std::uint64_t, kBuckets>;

class HazardModel {
 public:
  HazardModel() { clear(); }

  void clear() {
    base_.fill({std::log(0.1 / 0.9), 0.0});
    feature_.assign(kFeatures * kValues, {});
    zone_.assign(kFeatures * kValues * kZones, {});
    ratio_.fill({});
  }
  const Ages& ages() const { return ages_; }

  // The chance of a return in the bucket, given none before.
  double hazard(const Covariates& x, int bucket) const {
    return chance(sum(x, bucket / kZoneLength) + at_bucket(x, bucket));
  }
  // The same for one bucket after the other. What depends on the zone only is summed once
  // for each zone.
  class HazardOf {
   public:
    HazardOf(const HazardModel& model, const Covariates& x) : model_(&model), x_(&x) {}
    double operator()(int bucket) {
      if (bucket / kZoneLength != zone_) {
        zone_ = bucket / kZoneLength;
        of_zone_ = model_->sum(*x_, zone_);
      }
      return chance(of_zone_ + model_->at_bucket(*x_, bucket));
    }

   private:
    const HazardModel* model_;
    const Covariates* x_;
    int zone_ = -1;
    double of_zone_ = 0.0;
  };
  HazardOf hazard_of(const Covariates& x) const { return {*this, x}; }
  Hazards hazards(const Covariates& x) const {
    Hazards out;
    HazardOf hazard = hazard_of(x);
    for (int bucket = 0; bucket < kBuckets; ++bucket) out[bucket] = hazard(bucket);
    return out;
  }

  // Saw a group in the bucket: did it return there? `weight` is 0 or more.
  void learn(const Covariates& x, int bucket, bool returned, double weight) {
    if (weight <= 0.0) return;
    const double gradient = (hazard(x, bucket) - (returned ? 1.0 : 0.0)) * weight;
    base_[bucket].step(gradient, kRate);
    for (int feature = 0; feature < kFeatures; ++feature) {
      if (x.values[feature] < 0) continue;
      const int at = feature * kValues + x.values[feature];
      feature_[at].step(gradient, kRate);
      zone_[at * kZones + bucket / kZoneLength].step(gradient, kZoneRate);
    }
    if (x.paced) ratio_[ratio(x, bucket)].step(gradient, kRate);
  }

  // All that was learnt: appended to `out`, or read from the front of `in`, which is
  // `saved_size` long.
  void save(std::vector<double>& out) const {
    each(*this, [&](const Weight& weight) {
      out.push_back(weight.value);
      out.push_back(weight.squares);
    });
  }
  void load(std::span<const double> in) {
    std::size_t at = 0;
    each(*this, [&](Weight& weight) {
      weight.value = in[at++];
      weight.squares = in[at++];
    });
  }
  static constexpr std::size_t saved_size() {
    return 2 * (kBuckets + kFeatures * kValues * (1 + kZones) + 2 * kRatios);
  }
  std::size_t bytes() const { return (feature_.size() + zone_.size()) * sizeof(Weight); }

 private:
  static constexpr int kZoneLength = kBuckets / kZones;
  static constexpr double kRate = 0.1;
  static constexpr double kZoneRate = 0.05;
  struct Weight {
    double value = 0.0;
    double squares = 0.0;  // of all gradients so far
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
  static double chance(double logit) { return 1.0 / (1.0 + std::exp(-logit)); }

  double sum(const Covariates& x, int zone) const {
    double sum = 0.0;
    for (int feature = 0; feature < kFeatures; ++feature) {
      if (x.values[feature] < 0) continue;
      const int at = feature * kValues + x.values[feature];
      sum += feature_[at].value + zone_[at * kZones + zone].value;
    }
    return sum;
  }
  double at_bucket(const Covariates& x, int bucket) const {
    return base_[bucket].value + (x.paced ? ratio_[ratio(x, bucket)].value : 0.0);
  }
  // The age as a multiple of the usual gap: the session's own pace, free of scale.
  int ratio(const Covariates& x, int bucket) const {
    const int step = static_cast<int>(std::floor((ages_.log_middle(bucket) - x.log_gap) / 0.35)) + 9;
    return std::clamp(step, 0, kRatios - 1) + (x.shared ? kRatios : 0);
  }

  Ages ages_;
  std::array<Weight, kBuckets> base_;
  std::vector<Weight> feature_;
  std::vector<Weight> zone_;
  std::array<Weight, 2 * kRatios> ratio_;
};

}  // namespace eviction::gittins
