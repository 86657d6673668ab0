#include "tenure/sim/trace.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>

#include "tenure/base/status.h"

namespace tenure::sim {
namespace {

constexpr size_t kReadBytes = size_t{1} << 18;
constexpr size_t kQuotedMax = 40;

enum Field : int { kTimestamp, kInputLength, kOutputLength, kHashIds, kFields, kUnknownField };
constexpr std::array<std::string_view, kFields> kFieldNames = {"timestamp", "input_length", "output_length",
                                                               "hash_ids"};
constexpr std::array<int64_t, kFields> kMinimum = {0, 1, 0, 0};
constexpr std::array<int64_t, kFields> kMaximum = {kTraceTimestampMax, kTraceTokensMax.value(), kTraceTokensMax.value(),
                                                   INT64_MAX};

std::string Printable(std::string_view text) {
  std::string result;
  for (const char c : text.substr(0, kQuotedMax)) result += (c >= ' ' && c <= '~') ? c : '?';
  if (text.size() > kQuotedMax) result += "...";
  return result;
}

// Receives the parser's events; a member that answers false stops it with `error` set.
class LineHandler {
 public:
  using Json = nlohmann::json;

  explicit LineHandler(TraceRequest& request) : request_(request) {}

  bool null() { return Scalar("null"); }
  bool boolean(bool value) { return Scalar(value ? "true" : "false"); }
  bool number_integer(Json::number_integer_t value) { return Integer(value); }
  bool number_unsigned(Json::number_unsigned_t value) {
    return value > INT64_MAX ? Scalar(std::to_string(value)) : Integer(static_cast<int64_t>(value));
  }
  bool number_float(Json::number_float_t, const std::string& text) { return Scalar(text); }
  bool string(std::string& text) { return Scalar("\"" + Printable(text) + "\""); }
  bool binary(Json::binary_t&) { return Scalar("binary"); }

  bool start_object(size_t) {
    if (depth_ > 0 && !Scalar("an object")) return false;
    ++depth_;
    return true;
  }
  bool end_object() {
    --depth_;
    return true;
  }
  bool start_array(size_t) {
    if (depth_ == 1 && field_ == kHashIds) {
      in_hash_ids_ = true;
    } else if (!Scalar("an array")) {
      return false;
    }
    ++depth_;
    return true;
  }
  bool end_array() {
    if (--depth_ == 1) in_hash_ids_ = false;
    return true;
  }
  bool key(std::string& name) {
    if (depth_ != 1) return true;
    field_ = kUnknownField;
    for (int i = 0; i < kFields; ++i) {
      if (name == kFieldNames[i]) field_ = static_cast<Field>(i);
    }
    if (field_ == kUnknownField) return true;
    if (seen_[field_]) return Refuse(InvalidArgument("{} is given twice: keep one", name));
    seen_[field_] = true;
    return true;
  }
  bool parse_error(size_t position, const std::string& token, const Json::exception& error) {
    constexpr int kNumberOutOfRange = 406;
    if (error.id == kNumberOutOfRange && !Scalar(token)) return false;
    parse_error_position_ = position;
    return false;
  }

  absl::Status Finish(bool parsed, size_t line_size) const {
    if (!error_.ok()) return error_;
    if (parse_error_position_ && *parse_error_position_ > line_size) {
      return InvalidArgument(
          "the line is cut off in the middle of its JSON object: copy the trace again, or remove the line");
    }
    if (parse_error_position_ || !parsed) {
      return InvalidArgument("not JSON at column {}: write one JSON object a line", parse_error_position_.value_or(1));
    }
    for (int i = 0; i < kFields; ++i) {
      if (!seen_[i]) return InvalidArgument("{} is missing: every request needs it", kFieldNames[i]);
    }
    return absl::OkStatus();
  }

 private:
  bool Refuse(absl::Status error) {
    error_ = std::move(error);
    return false;
  }
  // A value that is not a whole number that fits 63 bits, as text.
  bool Scalar(std::string_view text) {
    if (depth_ == 0) return Refuse(InvalidArgument("{} where a request belongs: write one JSON object a line", text));
    if (in_hash_ids_) {
      return Refuse(InvalidArgument("hash_ids[{}] {}: give whole numbers from 0 to 2^63 - 1", request_.hash_ids.size(),
                                    Printable(text)));
    }
    if (depth_ > 1 || field_ == kUnknownField) return true;
    if (field_ == kHashIds) return Refuse(InvalidArgument("hash_ids {}: give an array", Printable(text)));
    return Refuse(OutOfRange(text));
  }
  bool Integer(int64_t value) {
    if (in_hash_ids_ && depth_ == 2) {
      if (value < 0) return Scalar(std::to_string(value));
      request_.hash_ids.push_back(value);
      return true;
    }
    if (depth_ != 1 || field_ == kUnknownField || field_ == kHashIds) return Scalar(std::to_string(value));
    if (value < kMinimum[field_] || value > kMaximum[field_]) return Refuse(OutOfRange(std::to_string(value)));
    if (field_ == kTimestamp) request_.timestamp_ms = value;
    if (field_ == kInputLength) request_.input_length = Tokens(value);
    if (field_ == kOutputLength) request_.output_length = Tokens(value);
    return true;
  }
  absl::Status OutOfRange(std::string_view text) const {
    return InvalidArgument("{} {}: give a whole number from {} to {}", kFieldNames[field_], Printable(text),
                           kMinimum[field_], kMaximum[field_]);
  }

  TraceRequest& request_;
  int depth_ = 0;
  Field field_ = kUnknownField;  // The key of depth 1 that was read last.
  bool in_hash_ids_ = false;
  std::array<bool, kFields> seen_{};
  std::optional<size_t> parse_error_position_;
  absl::Status error_;
};

}  // namespace

absl::Status ParseTraceLine(std::string_view line, Tokens trace_block, TraceRequest& request) {
  if (line.empty()) return InvalidArgument("the line is empty: write one JSON object a line");
  request.hash_ids.clear();
  LineHandler handler(request);
  const bool parsed = nlohmann::json::sax_parse(line.begin(), line.end(), &handler);
  TENURE_RETURN_IF_ERROR(handler.Finish(parsed, line.size()));
  const int64_t needed = CeilDiv(request.input_length, trace_block);
  if (static_cast<int64_t>(request.hash_ids.size()) != needed) {
    return InvalidArgument(
        "hash_ids has {} entries, but input_length {} at --trace-block {} needs {}: check --trace-block or the line",
        request.hash_ids.size(), request.input_length.value(), trace_block.value(), needed);
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> TraceReader::NextLine(std::string_view& line) {
  size_t searched = begin_;
  while (true) {
    const char* newline = nullptr;
    if (end_ > searched)
      newline = static_cast<const char*>(std::memchr(buffer_.data() + searched, '\n', end_ - searched));
    if (newline != nullptr || (at_end_ && begin_ < end_)) {
      const size_t line_end = newline != nullptr ? static_cast<size_t>(newline - buffer_.data()) : end_;
      line = std::string_view(buffer_.data() + begin_, line_end - begin_);
      const size_t next = std::min(line_end + 1, end_);
      consumed_ += Bytes(static_cast<int64_t>(next - begin_));
      begin_ = next;
      return true;
    }
    if (at_end_) return false;
    searched = end_;
    if (begin_ > 0) {
      std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
      searched -= begin_;
      end_ -= begin_;
      begin_ = 0;
    }
    if (end_ > kTraceLineBytesMax) {
      return BadData("{}:{}: the line is longer than {} MiB: this is not a trace", name_, line_number_ + 1,
                     kTraceLineBytesMax >> 20);
    }
    if (buffer_.size() < end_ + kReadBytes) buffer_.resize(std::max(2 * buffer_.size(), end_ + kReadBytes));
    TENURE_ASSIGN_OR_RETURN(const size_t count, bytes_->Read(std::span(buffer_).subspan(end_)));
    end_ += count;
    at_end_ = count == 0;
  }
}

absl::StatusOr<bool> TraceReader::Next(TraceRequest& request) {
  std::string_view line;
  TENURE_ASSIGN_OR_RETURN(const bool more, NextLine(line));
  if (!more) {
    if (line_number_ == 0) return BadData("{}: the file is empty: a trace has at least one request", name_);
    return false;
  }
  ++line_number_;
  const absl::Status parsed = ParseTraceLine(line, trace_block_, request);
  if (!parsed.ok()) return BadData("{}:{}: {}", name_, line_number_, Message(parsed));
  if (request.timestamp_ms < last_timestamp_ms_) {
    return BadData("{}:{}: timestamp {} goes back behind {} of the line before: sort the trace by timestamp", name_,
                   line_number_, request.timestamp_ms, last_timestamp_ms_);
  }
  last_timestamp_ms_ = request.timestamp_ms;
  return true;
}

}  // namespace tenure::sim
