#include "tenure/store/copy_digest.h"

#include <algorithm>
#include <cstring>

#define XXH_STATIC_LINKING_ONLY  // For the size of the streaming state.
#if defined(__x86_64__)
// The plain symbols of the packaged library are SSE2 and half as fast as what these pick at run time.
#include <xxh_x86dispatch.h>
#else
#include <xxhash.h>
#endif

namespace tenure::store {
namespace {

constexpr size_t kStepBytes = size_t{16} << 10;  // Stays in the first-level cache between copy and hash.

class StreamingDigest {
 public:
  explicit StreamingDigest(uint64_t seed) { XXH3_64bits_reset_withSeed(&state_, seed); }
  void Update(const std::byte* data, size_t size) {
#if defined(__x86_64__)
    XXH3_64bits_update_dispatch(&state_, data, size);
#else
    XXH3_64bits_update(&state_, data, size);
#endif
  }
  uint64_t Finish() const { return XXH3_64bits_digest(&state_); }

 private:
  XXH3_state_t state_;
};

uint64_t OneShot(uint64_t seed, const std::byte* data, size_t size) {
#if defined(__x86_64__)
  return XXH3_64bits_withSeed_dispatch(data, size, seed);
#else
  return XXH3_64bits_withSeed(data, size, seed);
#endif
}

}  // namespace

uint64_t DigestSeed(uint64_t namespace_hash, const kv::BlockHash& hash) {
  return XXH3_64bits_withSeed(hash.bytes().data(), hash.size(), namespace_hash);
}

uint64_t Digest(uint64_t seed, std::span<const std::byte> bytes) { return OneShot(seed, bytes.data(), bytes.size()); }

uint64_t GatherWithDigest(uint64_t seed, std::span<const ConstSegment> from, std::byte* destination) {
  if (from.size() == 1 && from[0].size <= kStepBytes) {
    std::memcpy(destination, from[0].data, from[0].size);
    return OneShot(seed, destination, from[0].size);
  }
  StreamingDigest digest(seed);
  for (const ConstSegment& segment : from) {
    for (size_t done = 0; done < segment.size;) {
      const size_t step = std::min(kStepBytes, segment.size - done);
      std::memcpy(destination, segment.data + done, step);
      digest.Update(destination, step);
      destination += step;
      done += step;
    }
  }
  return digest.Finish();
}

uint64_t ScatterWithDigest(uint64_t seed, const std::byte* source, std::span<const Segment> to) {
  if (to.size() == 1 && to[0].size <= kStepBytes) {
    std::memcpy(to[0].data, source, to[0].size);
    return OneShot(seed, to[0].data, to[0].size);
  }
  StreamingDigest digest(seed);
  for (const Segment& segment : to) {
    for (size_t done = 0; done < segment.size;) {
      const size_t step = std::min(kStepBytes, segment.size - done);
      std::memcpy(segment.data + done, source, step);
      digest.Update(segment.data + done, step);
      source += step;
      done += step;
    }
  }
  return digest.Finish();
}

}  // namespace tenure::store
