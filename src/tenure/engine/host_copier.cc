#include "tenure/base/status.h"
#include "tenure/engine/copier.h"

namespace tenure::engine {
namespace {

// An engine on the host has written its KV when it hands out a plan.
class PassedFence final : public Fence {
 public:
  absl::Status Wait() override { return absl::OkStatus(); }
};

class DirectLane final : public CopyLane {
 public:
  std::span<std::byte> staging() override { return {}; }
  absl::Status Gather(std::span<const store::Segment> /*from*/, std::byte* /*to*/) override { return Refused(); }
  absl::Status Scatter(const std::byte* /*from*/, std::span<const store::Segment> /*to*/) override { return Refused(); }

 private:
  static absl::Status Refused() {
    return FailedPrecondition("host memory has no staging; give the pool its addresses");
  }
};

class HostCopier final : public Copier {
 public:
  absl::StatusOr<std::unique_ptr<CopyLane>> OpenLane(Bytes /*bytes*/) override {
    return std::make_unique<DirectLane>();
  }
  absl::StatusOr<std::shared_ptr<Fence>> RecordFence(uint64_t /*stream*/) override {
    return std::make_shared<PassedFence>();
  }
};

}  // namespace

std::unique_ptr<Copier> MakeHostCopier() { return std::make_unique<HostCopier>(); }

}  // namespace tenure::engine
