// Seeded random numbers that are the same on every machine and standard library (xoshiro256** of Blackman and Vigna).
//
// std::mt19937 is as stable, but the std distributions are not; here both are ours. One thread at a time.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

namespace tenure {

class Random {
 public:
  using result_type = uint64_t;  // A UniformRandomBitGenerator, for std::shuffle.

  explicit Random(uint64_t seed) {
    for (uint64_t& word : state_) word = Mix(seed += 0x9E3779B97F4A7C15u);
  }

  static constexpr uint64_t min() { return 0; }
  static constexpr uint64_t max() { return UINT64_MAX; }
  uint64_t operator()() {
    const uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
    const uint64_t shifted = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= shifted;
    state_[3] = std::rotl(state_[3], 45);
    return result;
  }

  // In [0, bound); bound above 0. The bias of the multiplication is below bound / 2^64.
  uint64_t Below(uint64_t bound) { return static_cast<uint64_t>((static_cast<Wide>((*this)()) * bound) >> 64); }
  // In [low, high], both included.
  int64_t Between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(Below(static_cast<uint64_t>(high - low) + 1));
  }
  // In [0, 1).
  double Fraction() { return static_cast<double>((*this)() >> 11) * 0x1.0p-53; }
  bool Chance(double probability) { return Fraction() < probability; }
  double Exponential(double mean) { return -mean * std::log(1.0 - Fraction()); }

  // The finaliser of splitmix64: a bijection that spreads every bit.
  static constexpr uint64_t Mix(uint64_t value) {
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9u;
    value = (value ^ (value >> 27)) * 0x94D049BB133111EBu;
    return value ^ (value >> 31);
  }

 private:
  __extension__ using Wide = unsigned __int128;

  std::array<uint64_t, 4> state_;
};

}  // namespace tenure
