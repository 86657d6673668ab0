// Counts of values in buckets of fixed number: quantiles of any number of samples in 15 KiB.
//
// Values below 64 are exact; above, a bucket is 1/32 of its power of two, so a quantile is at most 3.2 % too low. A
// value.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

namespace tenure::sim {

class Histogram {
 public:
  // Negative values count as 0.
  void Add(int64_t value) {
    const uint64_t sample = static_cast<uint64_t>(std::max<int64_t>(value, 0));
    ++buckets_[BucketOf(sample)];
    ++count_;
    sum_ += sample;
    maximum_ = std::max(maximum_, sample);
  }

  int64_t count() const { return count_; }
  int64_t maximum() const { return static_cast<int64_t>(maximum_); }
  double mean() const { return count_ == 0 ? 0.0 : static_cast<double>(sum_) / static_cast<double>(count_); }
  // The lower bound of the bucket that holds the sample of rank ceil(quantile * count); 0 without samples. 0 < quantile
  // <= 1.
  int64_t Quantile(double quantile) const {
    const int64_t rank = std::max<int64_t>(1, static_cast<int64_t>(quantile * static_cast<double>(count_) + 0.999999));
    int64_t seen = 0;
    for (size_t i = 0; i < buckets_.size(); ++i) {
      seen += buckets_[i];
      if (seen >= rank) return static_cast<int64_t>(LowerBound(i));
    }
    return 0;
  }

 private:
  static constexpr int kStepBits = 5;  // 32 buckets a power of two.
  static constexpr uint64_t kExact = uint64_t{1} << (kStepBits + 1);

  static size_t BucketOf(uint64_t value) {
    if (value < kExact) return static_cast<size_t>(value);
    const int shift = static_cast<int>(std::bit_width(value)) - (kStepBits + 1);
    return static_cast<size_t>((static_cast<uint64_t>(shift) << kStepBits) + (value >> shift));
  }
  static uint64_t LowerBound(size_t bucket) {
    if (bucket < kExact) return bucket;
    const uint64_t shift = (bucket >> kStepBits) - 1;
    return ((bucket & ((uint64_t{1} << kStepBits) - 1)) + (uint64_t{1} << kStepBits)) << shift;
  }

  std::array<int64_t, (size_t{64} - kStepBits) << kStepBits> buckets_{};
  int64_t count_ = 0;
  uint64_t sum_ = 0;
  uint64_t maximum_ = 0;
};

}  // namespace tenure::sim
