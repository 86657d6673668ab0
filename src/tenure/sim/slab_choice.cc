#include "tenure/sim/slab_choice.h"

#include <algorithm>
#include <cstdint>

namespace tenure::sim {
namespace {

constexpr int64_t kSlabBytes = int64_t{64} << 20;
constexpr int64_t kSlabBytesMax = int64_t{2} << 30;  // The pool's own bound.
constexpr int64_t kSlabsMin = 64;  // Fewer slabs and a size class holds too coarse a share of the pool.
constexpr int64_t kMultiplesTried = 32;
constexpr double kGoodWaste = 0.01;

double Waste(std::span<const Bytes> sizes, Bytes slab) {
  Bytes rest;
  for (const Bytes size : sizes) rest = std::max(rest, slab % size);
  return static_cast<double>(rest.value()) / static_cast<double>(slab.value());
}

}  // namespace

Bytes ChooseSlab(std::span<const Bytes> sizes, Bytes capacity) {
  const Bytes largest = *std::ranges::max_element(sizes);
  const int64_t wanted = std::min(kSlabBytes, capacity.value() / kSlabsMin) / largest.value();
  const int64_t first = std::max<int64_t>(1, wanted);
  const int64_t last = std::max(
      first, std::min({first + kMultiplesTried, capacity / largest / kSlabsMin, kSlabBytesMax / largest.value()}));
  Bytes best = largest * first;
  for (int64_t multiple = first; multiple <= last && Waste(sizes, best) > kGoodWaste; ++multiple) {
    const Bytes slab = largest * multiple;
    if (Waste(sizes, slab) < Waste(sizes, best)) best = slab;
  }
  return best;
}

}  // namespace tenure::sim
