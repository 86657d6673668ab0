// Where a trace's bytes come from: a file, a pipe, or memory. Read once, front to back.
//
// One thread. A read that a signal interrupts answers Cancelled when `interrupted` is set, so that Ctrl-C ends a wait
// on a pipe.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "tenure/base/units.h"

namespace tenure::sim {

class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // Fills a front part of `buffer` (not empty); 0 at the end. The error names the source.
  virtual absl::StatusOr<size_t> Read(std::span<char> buffer) = 0;
  // Bytes in all, where that is known before reading.
  virtual std::optional<Bytes> size() const = 0;
};

// A regular file or a pipe; a directory, a missing or an unreadable file is refused with the reason. `interrupted` may
// be null and outlives the source.
absl::StatusOr<std::unique_ptr<ByteSource>> OpenFile(const std::string& path, const std::atomic<bool>* interrupted);

// What OpenFile would refuse of a file that is not a pipe, without opening it.
absl::Status CheckReadable(const std::string& path);

std::unique_ptr<ByteSource> MakeMemorySource(std::string bytes);

}  // namespace tenure::sim
