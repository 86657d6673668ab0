// What the tcp transports of two processes say to each other. A connection carries the posts of one writer, one after
// the other.
//
// Writer: a greeting, and once that is answered, parts: each a head and `size` bytes behind it. Receiver: an answer to
// the greeting, and one to each post that is whole or refused. A part of another post ends the one before it, whole or
// not: a writer that gives a post up goes on with the next one.
//
// The heads are these bytes as they lie in memory, least significant first.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "tenure/transfer/verdict.h"

namespace tenure::transfer {

static_assert(std::endian::native == std::endian::little, "heads of messages travel as they lie in memory");

// "TENURE1\n": begins a connection, with the version of all that follows.
inline constexpr uint64_t kTcpGreeting = 0x0A31'4552'554E'4554;

struct TcpGreeting {
  uint64_t magic = kTcpGreeting;
  uint64_t receiver = 0;  // Of the address that is written to.
};

struct TcpPart {
  uint64_t post = 0;   // Among the writer's; not kTcpGreeting.
  uint64_t to = 0;     // Address in the receiver's memory.
  uint64_t size = 0;   // Bytes behind this head, at least 1.
  uint64_t total = 0;  // Bytes of the whole post.
};

struct TcpAnswer {
  uint64_t post = 0;  // kTcpGreeting: to the greeting.
  Verdict verdict = Verdict::kWritten;
};

// A head from its bytes, as many as it has.
template <typename Head>
Head ReadHead(const char* bytes) {
  Head head;
  std::memcpy(&head, bytes, sizeof(head));
  return head;
}

}  // namespace tenure::transfer
