#include "tenure/engine/device_copier.h"

#include "tenure/base/status.h"
#include "tenure/engine/cuda_copier.h"
#include "tenure/engine/cuda_driver.h"

namespace tenure::engine {

absl::StatusOr<std::unique_ptr<Copier>> MakeDeviceCopier(std::string_view type, int ordinal) {
  if (type == "cpu") return MakeHostCopier();
  if (type == "cuda") {
    const absl::StatusOr<const CudaDriver*> driver = LoadCudaDriver();
    if (!driver.ok()) return Unavailable("KV is on cuda:{} and {}", ordinal, Message(driver.status()));
    return CudaCopier::Create(**driver, ordinal);
  }
  return InvalidArgument("KV is on {}:{}, a kind of device that is not known; keep the KV cache on cpu or cuda",
                         type.substr(0, 64), ordinal);
}

}  // namespace tenure::engine
