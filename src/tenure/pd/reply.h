// What P answers to a pull or to a renewal (pd_protocol spec §3: MooncakeXferResponse).
//
// The ids of ok_requests and err_requests are D's request ids. One pull gets any number of kContinue, each for requests
// that are done, and then one kFinish or kError; kError fails every request of the message that has no answer yet. A
// renewal gets one kFinish or kError. Pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace tenure::pd {

enum class ReplyStatus : uint8_t { kFinish = 0, kContinue = 1, kError = 2 };

struct Reply {
  ReplyStatus status = ReplyStatus::kFinish;
  // An empty list is not sent; stock peers say nil for it.
  std::vector<std::string> ok_requests;
  std::vector<std::string> err_requests;
  std::optional<std::string> err_message;
  // To a renewal only: transfers that P does not hold, so that D can give them up early. An addition; stock has no such
  // field.
  std::vector<std::string> unknown_transfer_ids;

  friend bool operator==(const Reply&, const Reply&) = default;
};

// InvalidArgument for texts and lists beyond MsgpackReader's maxima.
absl::StatusOr<std::string> EncodeReply(const Reply& reply);
// InvalidArgument for what is malformed, beyond the maxima or has an unknown status.
absl::StatusOr<Reply> DecodeReply(std::string_view message);

}  // namespace tenure::pd
