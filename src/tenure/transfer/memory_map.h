// Registered memory: ranges that do not overlap, and which of them holds an address. A value; fixed once made.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "tenure/pd/transport_address.h"

namespace tenure::transfer {

struct MemoryRange;

class MemoryMap {
 public:
  MemoryMap() = default;
  // InvalidArgument for empty, wrapping, overlapping and too many ranges; `whose` begins its text.
  static absl::StatusOr<MemoryMap> Create(std::string_view whose, const std::vector<MemoryRange>& ranges);
  // What a peer says of its memory.
  static absl::StatusOr<MemoryMap> Create(const pd::TransportAddress& peer);

  static constexpr uint32_t kNone = UINT32_MAX;
  // The place among the ranges that were given of the one that holds all of the `size` > 0 bytes; kNone for no such.
  uint32_t Find(uint64_t address, uint64_t size) const;

 private:
  struct Entry {
    uint64_t first;
    uint64_t last;
    uint32_t range;
  };
  std::vector<Entry> entries_;  // By address.
};

}  // namespace tenure::transfer
