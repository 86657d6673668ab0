#include "tenure/pd/renewal.h"

#include <array>

#include "tenure/base/status.h"
#include "tenure/pd/msgpack_reader.h"
#include "tenure/pd/msgpack_writer.h"
#include "tenure/pd/wire_fields.h"

namespace tenure::pd {
namespace {

constexpr std::array<std::string_view, 2> kFields = {"renew_transfer_ids", "kv_lease_duration"};

}  // namespace

bool IsRenewal(std::string_view message) {
  MsgpackReader reader(message);
  return reader.Map() > 0 && reader.RawText() == kFields[0] && !reader.failed();
}

absl::StatusOr<std::string> EncodeRenewal(const Renewal& renewal) {
  if (renewal.transfer_ids.size() > kRenewalIdsMax) {
    return InvalidArgument("renewal: {} transfer ids; put at most {} into a message", renewal.transfer_ids.size(),
                           kRenewalIdsMax);
  }
  TENURE_RETURN_IF_ERROR(CheckTexts("renewal: renew_transfer_ids", renewal.transfer_ids));
  TENURE_RETURN_IF_ERROR(CheckLease("renewal", renewal.kv_lease_duration));
  std::string message;
  MapWriter map(message);
  if (!renewal.transfer_ids.empty()) map.Field(kFields[0]).Value(renewal.transfer_ids);
  if (renewal.kv_lease_duration) map.Field(kFields[1]).Value(*renewal.kv_lease_duration);
  map.Finish();
  return message;
}

absl::StatusOr<Renewal> DecodeRenewal(std::string_view message) {
  Renewal renewal;
  MsgpackReader reader(message);
  reader.Fields(kFields, 0, [&](size_t field) {
    if (field == 1) return reader.Read(renewal.kv_lease_duration);
    const size_t count = reader.Array(kRenewalIdsMax);
    renewal.transfer_ids.reserve(count);
    for (size_t i = 0; i < count && !reader.failed(); ++i) reader.Read(renewal.transfer_ids.emplace_back());
  });
  TENURE_RETURN_IF_ERROR(reader.Finish("renewal"));
  TENURE_RETURN_IF_ERROR(CheckLease("renewal", renewal.kv_lease_duration));
  return renewal;
}

}  // namespace tenure::pd
