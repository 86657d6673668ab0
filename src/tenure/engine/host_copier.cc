#include <utility>

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
    return FailedPrecondition("this memory has no staging; give the pool its addresses");
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
  absl::Status OnDevice(const std::function<absl::Status()>& call) override { return call(); }
};

class DirectCopier final : public Copier {
 public:
  explicit DirectCopier(std::shared_ptr<Copier> device) : device_(std::move(device)) {}

  absl::StatusOr<std::unique_ptr<CopyLane>> OpenLane(Bytes /*bytes*/) override {
    return std::make_unique<DirectLane>();
  }
  absl::StatusOr<std::shared_ptr<Fence>> RecordFence(uint64_t stream) override { return device_->RecordFence(stream); }
  absl::Status OnDevice(const std::function<absl::Status()>& call) override { return device_->OnDevice(call); }

 private:
  const std::shared_ptr<Copier> device_;
};

}  // namespace

std::unique_ptr<Copier> MakeHostCopier() { return std::make_unique<HostCopier>(); }

std::unique_ptr<Copier> MakeDirectCopier(std::shared_ptr<Copier> device) {
  return std::make_unique<DirectCopier>(std::move(device));
}

}  // namespace tenure::engine
