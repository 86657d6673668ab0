// The length of one full-attention chain, narrowed down by probes: chunks below `low` are present or assumed to be,
// chunk `high` is absent. Pure state; one thread at a time.
//
// A chain is searched by sections: n probes cut what is left into n + 1 parts. Where the chain has holes the result is
// one of its ends, never before the first hole.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tenure::kv {

class ChainSearch {
 public:
  ChainSearch() = default;
  // A chain of at most `chunks`.
  explicit ChainSearch(int64_t chunks) : chunks_(std::max<int64_t>(chunks, 0)), high_(chunks_) {}

  int64_t chunks() const { return chunks_; }
  int64_t low() const { return low_; }
  int64_t high() const { return high_; }
  bool decided() const { return low_ == high_; }

  void LearnPresent(int64_t chunk) {
    if (chunk < high_) low_ = std::max(low_, chunk + 1);
  }
  // True if the assumption below `low` was wrong: the caller then sets low anew from what it knows for certain.
  bool LearnAbsent(int64_t chunk) {
    high_ = std::min(high_, chunk);
    return low_ > high_;
  }
  void ResetLow(int64_t low) { low_ = low; }

  // Calls visit(chunk), ascending and distinct, for at most `probes` chunks that cut the undecided part evenly.
  template <typename Visit>
  void ForEachSection(int64_t probes, Visit visit) const {
    const int64_t outcomes = high_ - low_ + 1;
    int64_t last = low_ - 1;
    for (int64_t j = 1; j <= probes; ++j) {
      const int64_t chunk = low_ + outcomes * j / (probes + 1) - 1;
      if (chunk <= last) continue;
      visit(chunk);
      last = chunk;
    }
  }

 private:
  int64_t chunks_ = 0;
  int64_t low_ = 0;
  int64_t high_ = 0;
};

}  // namespace tenure::kv
