// What a peer can be reached with: the one transport that its address is of, or the several that an `auto` address
// lists. Pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "tenure/pd/transport_address.h"

namespace tenure::transfer {

// The kind of an address that lists others.
inline constexpr std::string_view kAutoKind = "auto";
inline constexpr size_t kOffersMax = 8;

struct TransportOffer {
  std::string kind;     // At most 255 bytes.
  std::string address;  // As in a TransportAddress of that kind.

  friend bool operator==(const TransportOffer&, const TransportOffer&) = default;
};

// The `address` of kind `auto`: for each offer a byte with the kind's length, the kind, four bytes with the address's
// length, least significant first, and the address.
std::string EncodeOffers(const std::vector<TransportOffer>& offers);
// InvalidArgument for an `auto` address that EncodeOffers has not written, or with too many offers.
absl::StatusOr<std::vector<TransportOffer>> OffersOf(const pd::TransportAddress& peer);
// The kinds, for errors: `"local", "ucx"`.
std::string KindsOf(const std::vector<TransportOffer>& offers);

}  // namespace tenure::transfer
