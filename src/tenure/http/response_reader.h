// One HTTP/1.1 answer out of the bytes of a connection. Any bytes, in any pieces; no I/O.
//
// Our own and not cpp-httplib's: its client matches the status line with a regular expression that recurses for every
// byte, so that a line of a few megabytes ends the process, and it gathers head fields without end.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tenure/http/http_message.h"

namespace tenure::http {

class ResponseReader {
 public:
  static constexpr size_t kHeadBytesMax = 64 << 10;  // Status line and fields, of interim answers and trailers too.

  explicit ResponseReader(size_t body_bytes_max) : body_bytes_max_(body_bytes_max) {}

  // Takes the next bytes; whether the answer is whole. InvalidArgument: they are no HTTP/1.1; ResourceExhausted: more
  // than the maxima. After an error or the end of the answer it is not called again.
  absl::StatusOr<bool> Feed(std::string_view bytes);
  // The connection has ended; whether that makes the answer whole.
  bool FeedEnd() const { return state_ == State::kUntilEnd; }

  // Of a whole answer.
  HttpResponse Take() { return std::move(response_); }

 private:
  enum class State { kStatus, kFields, kLength, kUntilEnd, kChunkSize, kChunk, kChunkEnd, kTrailer, kWhole };

  absl::Status Step(bool& stuck);
  absl::Status TakeLine(std::optional<std::string_view>& line);
  absl::Status ReadStatus(std::string_view line);
  absl::Status ReadField(std::string_view line);
  absl::Status EndHead();
  absl::Status ReadChunkSize(std::string_view line);
  absl::Status TakeBody(uint64_t bytes_max);

  const size_t body_bytes_max_;
  State state_ = State::kStatus;
  std::string buffer_;  // What is not understood yet begins at `at_`.
  size_t at_ = 0;
  size_t head_bytes_ = 0;
  std::optional<uint64_t> length_;
  bool chunked_ = false;
  uint64_t left_ = 0;  // Of the body or the chunk.
  HttpResponse response_;
};

}  // namespace tenure::http
