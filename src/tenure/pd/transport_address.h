// Where a process's KV can be written by a peer: what D's transport says of itself, carried by a pull.
//
// Opaque to everything but the transport that made it and the one of the same kind that writes to it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tenure::pd {

// A range of memory that its process lets peers write to.
struct MemoryKey {
  uint64_t base = 0;  // In that process.
  uint64_t size = 0;  // Bytes.
  std::string key;    // Any bytes; what the transport needs to reach the range, often nothing.

  friend bool operator==(const MemoryKey&, const MemoryKey&) = default;
};

struct TransportAddress {
  std::string kind;     // "local", "ucx", ...; empty: a peer without Tenure's transports.
  std::string address;  // Any bytes.
  std::vector<MemoryKey> memory;

  friend bool operator==(const TransportAddress&, const TransportAddress&) = default;
};

}  // namespace tenure::pd
