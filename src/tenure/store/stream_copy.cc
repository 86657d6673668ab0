#include "tenure/store/stream_copy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace tenure::store {

#if defined(__x86_64__)

namespace {

constexpr size_t kLineBytes = 64;

// `to` is at the start of a line. The processor joins the four stores to one write of the line.
void StreamLine(std::byte* to, const std::byte* from) {
  const auto* source = reinterpret_cast<const __m128i*>(from);
  auto* target = reinterpret_cast<__m128i*>(to);
  const __m128i first = _mm_loadu_si128(source);
  const __m128i second = _mm_loadu_si128(source + 1);
  const __m128i third = _mm_loadu_si128(source + 2);
  const __m128i fourth = _mm_loadu_si128(source + 3);
  _mm_stream_si128(target, first);
  _mm_stream_si128(target + 1, second);
  _mm_stream_si128(target + 2, third);
  _mm_stream_si128(target + 3, fourth);
}

}  // namespace

void StreamCopy(std::byte* to, const std::byte* from, size_t size) {
  const size_t into_line = reinterpret_cast<uintptr_t>(to) % kLineBytes;
  size_t done = into_line == 0 ? 0 : std::min(size, kLineBytes - into_line);
  std::memcpy(to, from, done);
  for (; size - done >= kLineBytes; done += kLineBytes) StreamLine(to + done, from + done);
  std::memcpy(to + done, from + done, size - done);
}

void EndStreaming() { _mm_sfence(); }

#else

void StreamCopy(std::byte* to, const std::byte* from, size_t size) { std::memcpy(to, from, size); }
void EndStreaming() {}

#endif

}  // namespace tenure::store
