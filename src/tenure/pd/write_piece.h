// One copy from a prefill worker's memory into a decode worker's: what a write plan makes and a transport carries out.
#pragma once

#include <cstdint>

namespace tenure::pd {

struct WritePiece {
  uint64_t from;  // An address in P's process.
  uint64_t to;    // An address in D's process.
  uint64_t size;  // Bytes, at least 1; neither end passes the end of the address space.

  friend bool operator==(const WritePiece&, const WritePiece&) = default;
};

}  // namespace tenure::pd
