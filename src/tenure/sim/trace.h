// Request traces: one JSON object a line, read as a stream and checked field by field (format: traces/README.md).
//
// Every error is one line that names the source, the line, the field with its value, and the remedy. Memory is bounded
// by the longest line, however long the trace is. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "tenure/base/units.h"
#include "tenure/sim/byte_source.h"

namespace tenure::sim {

struct TraceRequest {
  int64_t timestamp_ms = 0;  // Since the trace began; never goes back.
  Tokens input_length;       // The prompt; at least 1.
  Tokens output_length;
  std::vector<int64_t>
      hash_ids;  // One a block of the prompt, the last one may be partial; names the block and all before it.
};

inline constexpr int64_t kTraceTimestampMax = int64_t{9'000'000'000'000};  // Milliseconds; fits int64 nanoseconds.
inline constexpr Tokens kTraceTokensMax{int64_t{1} << 30};
inline constexpr Tokens kTraceBlockMax{int64_t{1} << 24};
inline constexpr size_t kTraceLineBytesMax = size_t{64} << 20;

// Requests in the order of their arrival.
class RequestSource {
 public:
  virtual ~RequestSource() = default;
  // False at the end. On an error `request` is unspecified.
  virtual absl::StatusOr<bool> Next(TraceRequest& request) = 0;
};

// One line without its newline. Fields that the format does not know are ignored. The error does not name the place.
absl::Status ParseTraceLine(std::string_view line, Tokens trace_block, TraceRequest& request);

class TraceReader final : public RequestSource {
 public:
  // `name` is how messages call the source. 1 <= trace_block <= kTraceBlockMax.
  TraceReader(std::string name, std::unique_ptr<ByteSource> bytes, Tokens trace_block)
      : name_(std::move(name)), bytes_(std::move(bytes)), trace_block_(trace_block) {}

  // Also refuses timestamps that go back, lines above kTraceLineBytesMax and a trace without a request.
  absl::StatusOr<bool> Next(TraceRequest& request) override;

  Bytes consumed() const { return consumed_; }
  const ByteSource& bytes() const { return *bytes_; }

 private:
  // The next line, valid until the next call; false at the end.
  absl::StatusOr<bool> NextLine(std::string_view& line);

  std::string name_;
  std::unique_ptr<ByteSource> bytes_;
  Tokens trace_block_;
  std::vector<char> buffer_;
  size_t begin_ = 0;  // Unread bytes of buffer_ are [begin_, end_).
  size_t end_ = 0;
  bool at_end_ = false;
  Bytes consumed_;
  int64_t line_number_ = 0;
  int64_t last_timestamp_ms_ = 0;
};

}  // namespace tenure::sim
