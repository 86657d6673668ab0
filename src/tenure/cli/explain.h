// `tenure explain`: answers questions about masks, hits, lookups and keys, one JSON line for one JSON line, in order.
//
// So that the rules can be used and checked from any language. Requests and answers: docs/reference/explain.md. No
// input ends it: a line that cannot be answered gets {"error": "..."} with the field and its value. One thread.
#pragma once

#include <cstddef>
#include <iosfwd>
#include <string>
#include <string_view>

namespace tenure::cli {

// A longer line is answered with an error, and read over without being kept.
inline constexpr size_t kExplainLineBytesMax = size_t{64} << 20;

// The answer to one request, without a line feed.
std::string ExplainLine(std::string_view line);

// Serves `in` to its end; each answer is flushed, so a program can ask and wait. Returns the exit code: 0, or 1 when
// `out` failed.
int RunExplain(std::istream& in, std::ostream& out);

}  // namespace tenure::cli
