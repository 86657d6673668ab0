// What the encoders of the P/D messages share: a map that counts its own fields, and the checks of what goes into it.
#pragma once

#include <cmath>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tenure/base/status.h"
#include "tenure/base/text.h"
#include "tenure/pd/msgpack_reader.h"
#include "tenure/pd/msgpack_writer.h"

namespace tenure::pd {

// A map of at most 65,535 fields, appended to a string; Finish puts the count in front. One map at a time.
class MapWriter {
 public:
  explicit MapWriter(std::string& out) : out_(out), start_(out.size()), writer_(out) {}

  // The caller writes one value with what it gets.
  MsgpackWriter& Field(std::string_view name) {
    ++count_;
    writer_.Text(name);
    return writer_;
  }
  void Finish() {
    std::string head;
    MsgpackWriter(head).Map(count_);
    out_.insert(start_, head);
  }

 private:
  std::string& out_;
  size_t start_;
  size_t count_ = 0;
  MsgpackWriter writer_;
};

// The texts and lists that a decoder would refuse, refused by the encoder. `what` names the field.
inline absl::Status CheckItems(std::string_view what, size_t items) {
  if (items <= MsgpackReader::kItemsMax) return absl::OkStatus();
  return InvalidArgument("{} has {} items; use at most {}", what, items, MsgpackReader::kItemsMax);
}

inline absl::Status CheckText(std::string_view what, std::string_view text) {
  if (text.size() > MsgpackReader::kTextBytesMax) {
    return InvalidArgument("{} has a text of {} bytes; use at most {}", what, text.size(),
                           MsgpackReader::kTextBytesMax);
  }
  if (!IsUtf8(text)) return InvalidArgument("{} has a text that is not UTF-8; use UTF-8", what);
  return absl::OkStatus();
}

inline absl::Status CheckTexts(std::string_view what, const std::vector<std::string>& texts) {
  TENURE_RETURN_IF_ERROR(CheckItems(what, texts.size()));
  for (const std::string& text : texts) TENURE_RETURN_IF_ERROR(CheckText(what, text));
  return absl::OkStatus();
}

inline absl::Status CheckBytes(std::string_view what, std::string_view bytes) {
  if (bytes.size() <= MsgpackReader::kBytesMax) return absl::OkStatus();
  return InvalidArgument("{} has {} bytes; use at most {}", what, bytes.size(), MsgpackReader::kBytesMax);
}

// Absent, or finite seconds above 0.
inline absl::Status CheckSeconds(std::string_view what, std::optional<double> seconds) {
  if (!seconds || (std::isfinite(*seconds) && *seconds > 0)) return absl::OkStatus();
  return InvalidArgument("{} is {}; use seconds above 0, or leave it out", what, *seconds);
}

// The same, with what its absence means.
inline absl::Status CheckLease(std::string_view what, std::optional<double> seconds) {
  if (!seconds || (std::isfinite(*seconds) && *seconds > 0)) return absl::OkStatus();
  return InvalidArgument("{}: kv_lease_duration is {}; use seconds above 0, or leave it out for off", what, *seconds);
}

}  // namespace tenure::pd
