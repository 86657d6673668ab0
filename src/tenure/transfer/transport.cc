#include "tenure/transfer/transport.h"

#include "tenure/base/status.h"
#include "tenure/transfer/transport_offers.h"

namespace tenure::transfer {

absl::StatusOr<std::string> Transport::AddressFor(const pd::TransportAddress& peer) const {
  TENURE_ASSIGN_OR_RETURN(std::vector<TransportOffer> offers, OffersOf(peer));
  for (TransportOffer& offer : offers) {
    if (offer.kind == kind()) return std::move(offer.address);
  }
  return FailedPrecondition("the peer offers {}, this side \"{}\"; set the same transport on both sides",
                            KindsOf(offers), kind());
}

}  // namespace tenure::transfer
