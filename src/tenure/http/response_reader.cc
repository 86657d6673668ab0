#include "tenure/http/response_reader.h"

#include <algorithm>
#include <charconv>

#include "tenure/base/status.h"
#include "tenure/base/text.h"

namespace tenure::http {
namespace {

constexpr size_t kQuotedMax = 100;

absl::Status NoHttp(std::string_view line) {
  return InvalidArgument("the answer is no HTTP/1.1 at \"{}\"; ask the right server", OneLine(line, kQuotedMax));
}

bool IsSame(std::string_view a, std::string_view lower) {
  const auto to_lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
  return a.size() == lower.size() &&
         std::equal(a.begin(), a.end(), lower.begin(), [&](char x, char y) { return to_lower(x) == y; });
}

std::string_view Trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

std::optional<uint64_t> ReadNumber(std::string_view text, int base) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, base);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

}  // namespace

absl::StatusOr<bool> ResponseReader::Feed(std::string_view bytes) {
  buffer_.erase(0, at_);
  at_ = 0;
  buffer_ += bytes;
  for (bool stuck = false; !stuck && state_ != State::kWhole;) TENURE_RETURN_IF_ERROR(Step(stuck));
  return state_ == State::kWhole;
}

// Understands one more part of the buffer; `stuck` when that takes more bytes.
absl::Status ResponseReader::Step(bool& stuck) {
  switch (state_) {
    case State::kLength:
    case State::kUntilEnd:
    case State::kChunk:
      TENURE_RETURN_IF_ERROR(TakeBody(state_ == State::kUntilEnd ? UINT64_MAX : left_));
      if (left_ == 0 && state_ == State::kLength) state_ = State::kWhole;
      if (left_ == 0 && state_ == State::kChunk) state_ = State::kChunkEnd;
      stuck = at_ == buffer_.size();
      return absl::OkStatus();
    default:
      break;
  }
  std::optional<std::string_view> line;
  TENURE_RETURN_IF_ERROR(TakeLine(line));
  stuck = !line.has_value();
  if (stuck) return absl::OkStatus();
  switch (state_) {
    case State::kStatus:
      return ReadStatus(*line);
    case State::kFields:
      return line->empty() ? EndHead() : ReadField(*line);
    case State::kChunkSize:
      return ReadChunkSize(*line);
    case State::kChunkEnd:
      state_ = State::kChunkSize;
      return line->empty() ? absl::OkStatus() : NoHttp(*line);
    default:  // kTrailer, whose fields nobody asks for.
      if (line->empty()) state_ = State::kWhole;
      return absl::OkStatus();
  }
}

// A line without its end; none while it is not whole. What is not of the body counts for the head.
absl::Status ResponseReader::TakeLine(std::optional<std::string_view>& line) {
  const size_t end = buffer_.find('\n', at_);
  const size_t size = (end == buffer_.npos ? buffer_.size() : end + 1) - at_;
  if (size > kHeadBytesMax - head_bytes_) {
    return ResourceExhausted("the head of the answer is longer than {} bytes; ask the right server", kHeadBytesMax);
  }
  if (end == buffer_.npos) return absl::OkStatus();
  line = std::string_view(buffer_).substr(at_, size - 1);
  if (!line->empty() && line->back() == '\r') line->remove_suffix(1);
  // The chunks of a body are bounded by its maximum already.
  if (state_ != State::kChunkSize && state_ != State::kChunkEnd) head_bytes_ += size;
  at_ = end + 1;
  return absl::OkStatus();
}

absl::Status ResponseReader::ReadStatus(std::string_view line) {
  // "HTTP/1.1 200", and a reason or none.
  const bool shaped =
      line.size() >= 12 && line.substr(0, 7) == "HTTP/1." && line[8] == ' ' && (line.size() == 12 || line[12] == ' ');
  const std::optional<uint64_t> status = shaped ? ReadNumber(line.substr(9, 3), 10) : std::nullopt;
  if (!status || *status < 100) return NoHttp(line);
  response_.status = static_cast<int>(*status);
  response_.content_type.clear();
  length_.reset();
  chunked_ = false;
  state_ = State::kFields;
  return absl::OkStatus();
}

absl::Status ResponseReader::ReadField(std::string_view line) {
  const size_t colon = line.find(':');
  if (colon == line.npos || colon == 0) return NoHttp(line);
  const std::string_view name = line.substr(0, colon);
  const std::string_view value = Trimmed(line.substr(colon + 1));
  if (IsSame(name, "content-type")) response_.content_type = value;
  if (IsSame(name, "transfer-encoding")) {
    if (!IsSame(value, "chunked")) return NoHttp(line);
    chunked_ = true;
  }
  if (IsSame(name, "content-length")) {
    const std::optional<uint64_t> length = ReadNumber(value, 10);
    if (!length || (length_ && *length_ != *length)) return NoHttp(line);
    length_ = length;
  }
  return absl::OkStatus();
}

absl::Status ResponseReader::EndHead() {
  const int status = response_.status;
  if (status < 200) {
    state_ = State::kStatus;  // Another head follows an interim answer.
  } else if (status == 204 || status == 304) {
    state_ = State::kWhole;
  } else if (chunked_) {
    state_ = State::kChunkSize;
  } else if (!length_) {
    state_ = State::kUntilEnd;
  } else {
    left_ = *length_;
    state_ = left_ == 0 ? State::kWhole : State::kLength;
  }
  return absl::OkStatus();
}

absl::Status ResponseReader::ReadChunkSize(std::string_view line) {
  const std::optional<uint64_t> size = ReadNumber(Trimmed(line.substr(0, line.find(';'))), 16);
  if (!size) return NoHttp(line);
  left_ = *size;
  state_ = left_ == 0 ? State::kTrailer : State::kChunk;
  return absl::OkStatus();
}

absl::Status ResponseReader::TakeBody(uint64_t bytes_max) {
  const size_t bytes = static_cast<size_t>(std::min<uint64_t>(bytes_max, buffer_.size() - at_));
  if (bytes > body_bytes_max_ - response_.body.size()) {
    return ResourceExhausted("the answer is longer than {} bytes; ask the right server", body_bytes_max_);
  }
  response_.body.append(buffer_, at_, bytes);
  at_ += bytes;
  if (state_ != State::kUntilEnd) left_ -= bytes;
  return absl::OkStatus();
}

}  // namespace tenure::http
