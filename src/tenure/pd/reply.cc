#include "tenure/pd/reply.h"

#include <array>

#include "tenure/base/status.h"
#include "tenure/pd/msgpack_reader.h"
#include "tenure/pd/wire_fields.h"

namespace tenure::pd {
namespace {

constexpr std::array<std::string_view, 5> kFields = {"status", "ok_reqs", "err_reqs", "err_msg",
                                                     "unknown_transfer_ids"};

void ReadStatus(MsgpackReader& reader, ReplyStatus& status) {
  int64_t number = 0;
  reader.Read(number);
  if (number < 0 || number > static_cast<int64_t>(ReplyStatus::kError)) return reader.Fail("is none of 0, 1 and 2");
  status = static_cast<ReplyStatus>(number);
}

}  // namespace

absl::StatusOr<std::string> EncodeReply(const Reply& reply) {
  TENURE_RETURN_IF_ERROR(CheckTexts("reply: ok_reqs", reply.ok_requests));
  TENURE_RETURN_IF_ERROR(CheckTexts("reply: err_reqs", reply.err_requests));
  if (reply.err_message) TENURE_RETURN_IF_ERROR(CheckText("reply: err_msg", *reply.err_message));
  TENURE_RETURN_IF_ERROR(CheckTexts("reply: unknown_transfer_ids", reply.unknown_transfer_ids));
  std::string message;
  MapWriter map(message);
  map.Field(kFields[0]).Value(static_cast<int64_t>(reply.status));
  if (!reply.ok_requests.empty()) map.Field(kFields[1]).Value(reply.ok_requests);
  if (!reply.err_requests.empty()) map.Field(kFields[2]).Value(reply.err_requests);
  if (reply.err_message) map.Field(kFields[3]).Value(*reply.err_message);
  if (!reply.unknown_transfer_ids.empty()) map.Field(kFields[4]).Value(reply.unknown_transfer_ids);
  map.Finish();
  return message;
}

absl::StatusOr<Reply> DecodeReply(std::string_view message) {
  Reply reply;
  MsgpackReader reader(message);
  reader.Fields(kFields, 1, [&](size_t field) {
    if (field == 0) return ReadStatus(reader, reply.status);
    if (field == 3) return reader.Read(reply.err_message);
    if (field == 4) return reader.Read(reply.unknown_transfer_ids);
    if (!reader.Nil()) reader.Read(field == 1 ? reply.ok_requests : reply.err_requests);
  });
  TENURE_RETURN_IF_ERROR(reader.Finish("reply"));
  return reply;
}

}  // namespace tenure::pd
