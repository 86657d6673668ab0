// How bytes get from the engine's memory to memory that a pool can read, and back.
//
// Host memory needs no copy: a pool reads and writes it in place (MakeHostCopier). A device's memory goes through
// staging memory of the host (cuda_copier.h), or is named to a pool that reaches it itself (MakeDirectCopier). A Copier
// is shared by the threads of a worker; each opens a lane of its own and is that lane's only user.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tenure/base/units.h"
#include "tenure/store/pool.h"

namespace tenure::engine {

// A moment in the work that an engine has handed to its device. Thread-safe.
class Fence {
 public:
  virtual ~Fence() = default;
  // Returns when all work before that moment is done; what it wrote may be read then. Idempotent.
  virtual absl::Status Wait() = 0;
};

class CopyLane {
 public:
  virtual ~CopyLane() = default;
  // Empty: pools reach the engine's memory themselves and the copies below are never called.
  virtual std::span<std::byte> staging() = 0;
  // Gathers `from`, in the engine's memory, to `to` in the staging memory. Done when it returns.
  virtual absl::Status Gather(std::span<const store::Segment> from, std::byte* to) = 0;
  // Scatters `from` to the segments `to`. Nothing of it is written after it has returned, also when it failed.
  virtual absl::Status Scatter(const std::byte* from, std::span<const store::Segment> to) = 0;
};

class Copier {
 public:
  virtual ~Copier() = default;
  // A lane for objects of up to `bytes` at once. The copier outlives it.
  virtual absl::StatusOr<std::unique_ptr<CopyLane>> OpenLane(Bytes bytes) = 0;
  // What the engine has queued on `stream` (a handle of the device's driver; 0: its default stream) by now.
  virtual absl::StatusOr<std::shared_ptr<Fence>> RecordFence(uint64_t stream) = 0;
  // Runs `call` in this thread as one that works with the device: other libraries find its context there.
  virtual absl::Status OnDevice(const std::function<absl::Status()>& call) = 0;
};

std::unique_ptr<Copier> MakeHostCopier();

// For a pool that takes addresses of `device`'s memory: its lanes have no staging memory, its fences are the device's.
std::unique_ptr<Copier> MakeDirectCopier(std::shared_ptr<Copier> device);

}  // namespace tenure::engine
