// The pieces of one post, checked against both sides' registered memory and merged where neighbours touch.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "tenure/pd/transport_address.h"
#include "tenure/pd/write_piece.h"
#include "tenure/transfer/memory_map.h"

namespace tenure::transfer {

struct PlacedWrite {
  uint64_t from = 0;
  uint64_t to = 0;
  uint64_t size = 0;
  uint32_t from_range = 0;  // Among this process's ranges.
  uint32_t to_range = 0;    // Among the peer's.
};

// Pieces that follow one another in the list and in memory on both sides, inside one range each, become one. Pieces of
// no bytes are left out. InvalidArgument for too many pieces and for the first one outside of registered memory.
absl::StatusOr<std::vector<PlacedWrite>> PlaceWrites(const MemoryMap& own, const MemoryMap& peer,
                                                     const std::vector<pd::WritePiece>& pieces);

// The same for posts to one peer, whose memory is looked up anew only when a pull names other memory than the last.
class PeerPlacer {
 public:
  // `kind` as the peer's addresses have it.
  explicit PeerPlacer(std::string_view kind) : peer_{std::string(kind), "", {}} {}
  // InvalidArgument also for memory that is none.
  absl::StatusOr<std::vector<PlacedWrite>> Place(const MemoryMap& own, const std::vector<pd::MemoryKey>& memory,
                                                 const std::vector<pd::WritePiece>& pieces);

 private:
  pd::TransportAddress peer_;  // With the memory of the last Place.
  MemoryMap map_;
};

}  // namespace tenure::transfer
