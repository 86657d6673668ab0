// Copies between a CUDA device's KV cache and pinned memory of the host, with the driver alone.
//
// It uses the device's primary context, which the engine's framework uses too, so that device addresses and stream
// handles are the engine's. Each lane has a stream and staging memory of its own, taken once. Everything after the
// creation works from any thread: the context is made current for the time of a call only.
#pragma once

#include <memory>

#include "tenure/engine/copier.h"
#include "tenure/engine/cuda_driver.h"

namespace tenure::engine {

class CudaCopier final : public Copier {
 public:
  // `driver` outlives it. Unavailable names the device and what the driver says.
  static absl::StatusOr<std::unique_ptr<CudaCopier>> Create(const CudaDriver& driver, int ordinal);
  // Lanes and fences are gone by now.
  ~CudaCopier() override;
  CudaCopier(const CudaCopier&) = delete;
  CudaCopier& operator=(const CudaCopier&) = delete;

  absl::StatusOr<std::unique_ptr<CopyLane>> OpenLane(Bytes bytes) override;
  absl::StatusOr<std::shared_ptr<Fence>> RecordFence(uint64_t stream) override;
  absl::Status OnDevice(const std::function<absl::Status()>& call) override;

 private:
  CudaCopier(const CudaDriver& driver, CudaDevice device, CudaHandle context)
      : driver_(driver), device_(device), context_(context) {}

  const CudaDriver& driver_;
  const CudaDevice device_;
  const CudaHandle context_;
};

}  // namespace tenure::engine
