#include "tenure/store/copy_digest.h"

#include <algorithm>
#include <cstring>

#include "tenure/store/stream_copy.h"

#define XXH_STATIC_LINKING_ONLY  // For the size of the streaming state.
#if defined(__x86_64__)
// The plain symbols of the packaged library are SSE2 and half as fast as what these pick at run time.
#include <xxh_x86dispatch.h>
#else
#include <xxhash.h>
#endif

namespace tenure::store {
namespace {

// From here on an object is copied past the caches. Smaller ones are left in them for who asked.
constexpr size_t kStreamBytesMin = size_t{32} << 10;
// Stays in the first-level cache between digest and copy.
constexpr size_t kStepBytes = size_t{8} << 10;

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

// The digest is of the source, read from memory once and copied from the cache: a digest of the copy would first have
// to bring that into the cache, which costs a quarter of the speed.
class DigestingCopy {
 public:
  DigestingCopy(uint64_t seed, size_t object_bytes) : digest_(seed), streams_(object_bytes >= kStreamBytesMin) {}

  void Add(std::byte* to, const std::byte* from, size_t size) {
    for (size_t done = 0; done < size;) {
      const size_t step = std::min(kStepBytes, size - done);
      digest_.Update(from + done, step);
      if (streams_) {
        StreamCopy(to + done, from + done, step);
      } else {
        std::memcpy(to + done, from + done, step);
      }
      done += step;
    }
  }
  uint64_t Finish() const {
    if (streams_) EndStreaming();
    return digest_.Finish();
  }

 private:
  StreamingDigest digest_;
  const bool streams_;
};

template <typename SegmentType>
size_t TotalSize(std::span<const SegmentType> segments) {
  size_t size = 0;
  for (const SegmentType& segment : segments) size += segment.size;
  return size;
}

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
  if (from.size() == 1 && from[0].size < kStreamBytesMin) {
    std::memcpy(destination, from[0].data, from[0].size);
    return OneShot(seed, destination, from[0].size);
  }
  DigestingCopy copy(seed, TotalSize(from));
  for (const ConstSegment& segment : from) {
    copy.Add(destination, segment.data, segment.size);
    destination += segment.size;
  }
  return copy.Finish();
}

uint64_t ScatterWithDigest(uint64_t seed, const std::byte* source, std::span<const Segment> to) {
  if (to.size() == 1 && to[0].size < kStreamBytesMin) {
    std::memcpy(to[0].data, source, to[0].size);
    return OneShot(seed, to[0].data, to[0].size);
  }
  DigestingCopy copy(seed, TotalSize(to));
  for (const Segment& segment : to) {
    copy.Add(segment.data, source, segment.size);
    source += segment.size;
  }
  return copy.Finish();
}

}  // namespace tenure::store
