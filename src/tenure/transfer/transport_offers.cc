#include "tenure/transfer/transport_offers.h"

#include <cstdint>

#include "tenure/base/check.h"
#include "tenure/base/status.h"

namespace tenure::transfer {
namespace {

void AppendLength(std::string& bytes, size_t length, int length_bytes) {
  for (int i = 0; i < length_bytes; ++i) bytes.push_back(static_cast<char>(length >> (8 * i) & 0xFF));
}

// Takes a text behind its length from the front of `rest`; false when there is none.
bool TakeText(std::string_view& rest, size_t length_bytes, std::string& text) {
  if (rest.size() < length_bytes) return false;
  size_t length = 0;
  for (size_t i = 0; i < length_bytes; ++i) length |= size_t{static_cast<uint8_t>(rest[i])} << (8 * i);
  if (rest.size() - length_bytes < length) return false;
  text = rest.substr(length_bytes, length);
  rest.remove_prefix(length_bytes + length);
  return true;
}

}  // namespace

std::string EncodeOffers(const std::vector<TransportOffer>& offers) {
  std::string bytes;
  for (const TransportOffer& offer : offers) {
    TENURE_CHECK(offer.kind.size() <= UINT8_MAX && offer.address.size() <= UINT32_MAX);
    AppendLength(bytes, offer.kind.size(), 1);
    bytes += offer.kind;
    AppendLength(bytes, offer.address.size(), 4);
    bytes += offer.address;
  }
  return bytes;
}

absl::StatusOr<std::vector<TransportOffer>> OffersOf(const pd::TransportAddress& peer) {
  std::vector<TransportOffer> offers;
  if (peer.kind != kAutoKind) {
    offers.push_back({peer.kind, peer.address});
    return offers;
  }
  for (std::string_view rest = peer.address; !rest.empty();) {
    TransportOffer& offer = offers.emplace_back();
    if (offers.size() > kOffersMax || !TakeText(rest, 1, offer.kind) || !TakeText(rest, 4, offer.address)) {
      return InvalidArgument(
          "the peer's address ({} bytes) is no list of transports; let both sides run one version of "
          "Tenure",
          peer.address.size());
    }
  }
  return offers;
}

std::string KindsOf(const std::vector<TransportOffer>& offers) {
  std::string kinds;
  for (const TransportOffer& offer : offers) {
    if (!kinds.empty()) kinds += ", ";
    kinds += fmt::format("\"{}\"", offer.kind);
  }
  return kinds.empty() ? "none" : kinds;
}

}  // namespace tenure::transfer
