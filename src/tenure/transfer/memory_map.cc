#include "tenure/transfer/memory_map.h"

#include <algorithm>

#include "tenure/base/status.h"
#include "tenure/transfer/transport.h"

namespace tenure::transfer {

absl::StatusOr<MemoryMap> MemoryMap::Create(std::string_view whose, const std::vector<MemoryRange>& ranges) {
  if (ranges.size() > Transport::kRangesMax) {
    return InvalidArgument("{}: {} ranges of memory; register at most {}", whose, ranges.size(), Transport::kRangesMax);
  }
  MemoryMap map;
  map.entries_.reserve(ranges.size());
  for (uint32_t i = 0; i < ranges.size(); ++i) {
    const auto [address, size] = ranges[i];
    if (size == 0 || size - 1 > UINT64_MAX - address) {
      return InvalidArgument("{}: a range of {} bytes at {:#x}; give ranges that hold bytes and do not wrap", whose,
                             size, address);
    }
    map.entries_.push_back({address, address + (size - 1), i});
  }
  const auto by_address = [](const Entry& a, const Entry& b) { return a.first < b.first; };
  std::sort(map.entries_.begin(), map.entries_.end(), by_address);
  for (size_t i = 1; i < map.entries_.size(); ++i) {
    if (map.entries_[i].first > map.entries_[i - 1].last) continue;
    return InvalidArgument("{}: the ranges at {:#x} and {:#x} overlap; register each storage once", whose,
                           map.entries_[i - 1].first, map.entries_[i].first);
  }
  return map;
}

absl::StatusOr<MemoryMap> MemoryMap::Create(const pd::TransportAddress& peer) {
  std::vector<MemoryRange> ranges;
  ranges.reserve(peer.memory.size());
  for (const pd::MemoryKey& range : peer.memory) ranges.push_back({range.base, range.size});
  return Create("the peer's memory", ranges);
}

uint32_t MemoryMap::Find(uint64_t address, uint64_t size) const {
  const auto after = [](uint64_t value, const Entry& entry) { return value < entry.first; };
  const auto next = std::upper_bound(entries_.begin(), entries_.end(), address, after);
  if (next == entries_.begin()) return kNone;
  const Entry& entry = *(next - 1);
  return address <= entry.last && size - 1 <= entry.last - address ? entry.range : kNone;
}

}  // namespace tenure::transfer
