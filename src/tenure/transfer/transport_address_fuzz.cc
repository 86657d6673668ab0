// Any bytes as what a peer says of itself: an address of `local`, `tcp` or `ucx`, a list of transports, a frame of UCX,
// the memory that it has registered. No crash, an error of one bounded line, and what was understood is written as it
// was read.
#include <cstdint>
#include <string>
#include <string_view>

#include "tenure/base/check.h"
#include "tenure/base/status.h"
#include "tenure/transfer/address_frame.h"
#include "tenure/transfer/local_peer.h"
#include "tenure/transfer/memory_map.h"
#include "tenure/transfer/tcp_address.h"
#include "tenure/transfer/transport.h"
#include "tenure/transfer/transport_offers.h"
#include "tenure/transfer/ucx_address.h"
#include "tenure/transfer/ucx_frame.h"
#include "tenure/transfer/write_list.h"

namespace tenure::transfer {
namespace {

void CheckError(const absl::Status& status) {
  const std::string_view text = Message(status);
  TENURE_CHECK(absl::IsInvalidArgument(status) && text.size() < 400 && text.find('\n') == text.npos);
}

void ReadIdentity(std::string_view bytes) {
  const auto identity = DecodeLocalIdentity(bytes);
  if (!identity.ok()) return CheckError(identity.status());
  TENURE_CHECK(identity->pid > 0 && EncodeLocalIdentity(*identity) == bytes);
}

void ReadOffers(std::string_view bytes) {
  const auto offers = OffersOf({std::string(kAutoKind), std::string(bytes), {}});
  if (!offers.ok()) return CheckError(offers.status());
  TENURE_CHECK(offers->size() <= kOffersMax && EncodeOffers(*offers) == bytes);
}

void ReadFrame(std::string_view bytes) {
  const auto content = UnframeUcxBytes("worker address", bytes);
  if (content.ok()) {
    TENURE_CHECK(FrameUcxBytes(*content) == bytes);
  } else {
    CheckError(content.status());
  }
  // A sum that fits is found by no fuzzer.
  const auto framed = UnframeUcxBytes("worker address", FrameUcxBytes(bytes));
  TENURE_CHECK(bytes.empty() ? !framed.ok() : framed.ok() && *framed == bytes);
}

// Inside of a frame that fits.
template <typename Address>
void ReadAddress(std::string_view magic, std::string_view bytes, absl::StatusOr<Address> (*decode)(std::string_view),
                 std::string (*encode)(const Address&)) {
  const auto address = decode(FrameBytes(magic, bytes));
  if (!address.ok()) return CheckError(address.status());
  TENURE_CHECK(decode(encode(*address)).value() == *address);
}

// Eight bytes, as many as are left.
uint64_t TakeNumber(std::string_view& bytes) {
  uint64_t number = 0;
  for (int i = 0; i < 8 && !bytes.empty(); ++i) {
    number = number << 8 | static_cast<uint8_t>(bytes.front());
    bytes.remove_prefix(1);
  }
  return number;
}

// Ranges of a peer, and pieces that must be inside of them.
void ReadMemory(std::string_view bytes) {
  pd::TransportAddress peer;
  while (bytes.size() > 16 && peer.memory.size() < 8) {
    const uint64_t base = TakeNumber(bytes);
    peer.memory.push_back({base, TakeNumber(bytes), ""});
  }
  const auto map = MemoryMap::Create(peer);
  if (!map.ok()) return CheckError(map.status());
  const uint64_t to = TakeNumber(bytes);
  const pd::WritePiece piece = {.from = 0, .to = to, .size = TakeNumber(bytes)};
  const auto own = MemoryMap::Create("own", {{0, UINT64_MAX}});
  const auto placed = PlaceWrites(own.value(), *map, {piece});
  if (!placed.ok()) return CheckError(placed.status());
  for (const PlacedWrite& write : *placed) {
    const pd::MemoryKey& range = peer.memory.at(write.to_range);
    TENURE_CHECK(write.to >= range.base && write.to - range.base <= range.size - write.size);
  }
}

}  // namespace
}  // namespace tenure::transfer

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  tenure::transfer::ReadIdentity(bytes);
  tenure::transfer::ReadOffers(bytes);
  tenure::transfer::ReadFrame(bytes);
  tenure::transfer::ReadAddress("TTCP1", bytes, &tenure::transfer::DecodeTcpAddress,
                                &tenure::transfer::EncodeTcpAddress);
  tenure::transfer::ReadAddress("TUCX2", bytes, &tenure::transfer::DecodeUcxAddress,
                                &tenure::transfer::EncodeUcxAddress);
  tenure::transfer::ReadMemory(bytes);
  return 0;
}
