#include "tenure/transfer/write_list.h"

#include "tenure/base/status.h"
#include "tenure/transfer/transport.h"

namespace tenure::transfer {
namespace {

bool Continues(const PlacedWrite& last, const PlacedWrite& next) {
  return next.from == last.from + last.size && next.to == last.to + last.size && next.from_range == last.from_range &&
         next.to_range == last.to_range;
}

}  // namespace

absl::StatusOr<std::vector<PlacedWrite>> PlaceWrites(const MemoryMap& own, const MemoryMap& peer,
                                                     const std::vector<pd::WritePiece>& pieces) {
  if (pieces.size() > Transport::kPiecesMax) {
    return InvalidArgument("a post of {} pieces; post at most {} at once", pieces.size(), Transport::kPiecesMax);
  }
  std::vector<PlacedWrite> writes;
  for (const pd::WritePiece& piece : pieces) {
    if (piece.size == 0) continue;
    const PlacedWrite write = {piece.from, piece.to, piece.size, own.Find(piece.from, piece.size),
                               peer.Find(piece.to, piece.size)};
    if (write.from_range == MemoryMap::kNone) {
      return InvalidArgument("{} bytes from {:#x} are outside of this process's registered memory; register them first",
                             piece.size, piece.from);
    }
    if (write.to_range == MemoryMap::kNone) {
      return InvalidArgument(
          "{} bytes to {:#x} are outside of the memory that the peer has registered; nothing was written", piece.size,
          piece.to);
    }
    if (!writes.empty() && Continues(writes.back(), write)) {
      writes.back().size += write.size;
    } else {
      writes.push_back(write);
    }
  }
  return writes;
}

absl::StatusOr<std::vector<PlacedWrite>> PeerPlacer::Place(const MemoryMap& own,
                                                           const std::vector<pd::MemoryKey>& memory,
                                                           const std::vector<pd::WritePiece>& pieces) {
  if (memory != peer_.memory) {
    TENURE_ASSIGN_OR_RETURN(map_, MemoryMap::Create({peer_.kind, peer_.address, memory}));
    peer_.memory = memory;
  }
  return PlaceWrites(own, map_, pieces);
}

}  // namespace tenure::transfer
