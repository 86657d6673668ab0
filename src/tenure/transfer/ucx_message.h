// What the ucx transports of two processes say to each other as active messages: KV in parts, and one answer a post.
//
// The heads are these bytes as they lie in memory: both sides are little-endian (static_assert in ucx_receiver.cc), and
// the address' frame tells versions apart.
#pragma once

#include <cstdint>

#include "tenure/transfer/verdict.h"

namespace tenure::transfer {

// Bytes of a part. What is larger than UCX's segment over TCP, with all heads, comes in two fragments, which D's UCX
// puts together in memory that it takes for each: a fourth of D's processor time. UCX 1.13's segment is 64 KiB, so ours
// has room for the heads.
inline constexpr uint64_t kUcxPartBytes = 64 << 10;
inline constexpr uint64_t kUcxSegmentBytes = kUcxPartBytes + 1024;

// Identifiers of active messages.
enum class UcxMessage : uint16_t { kPart = 1, kAnswer = 2 };

// From the writer, with the part's bytes behind it. The first one of a connection is of a post without bytes.
struct UcxPart {
  uint64_t receiver = 0;  // Of the address that is written to.
  uint64_t post = 0;      // Among the writer's.
  uint64_t to = 0;        // Address in the receiver's memory.
  uint64_t total = 0;     // Bytes of the whole post.
};

// To the writer, once a post.
struct UcxAnswer {
  uint64_t post = 0;
  Verdict verdict = Verdict::kWritten;
};

}  // namespace tenure::transfer
