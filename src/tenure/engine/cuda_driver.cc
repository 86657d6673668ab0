#include "tenure/engine/cuda_driver.h"

#include <dlfcn.h>

#include "tenure/base/status.h"

namespace tenure::engine {
namespace {

constexpr const char* kLibrary = "libcuda.so.1";

template <typename Function>
absl::Status Find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function != nullptr) return absl::OkStatus();
  return Unavailable("{} has no {}; update the NVIDIA driver", kLibrary, name);
}

absl::StatusOr<CudaDriver> Load() {
  void* library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return Unavailable("cannot load {} ({}); install the NVIDIA driver, or keep the KV cache on the host", kLibrary,
                       dlerror());
  }
  CudaDriver driver;
  TENURE_RETURN_IF_ERROR(Find(library, "cuInit", driver.init));
  TENURE_RETURN_IF_ERROR(Find(library, "cuDeviceGet", driver.device_get));
  TENURE_RETURN_IF_ERROR(Find(library, "cuDevicePrimaryCtxRetain", driver.primary_context_retain));
  TENURE_RETURN_IF_ERROR(Find(library, "cuDevicePrimaryCtxRelease_v2", driver.primary_context_release));
  TENURE_RETURN_IF_ERROR(Find(library, "cuCtxPushCurrent_v2", driver.context_push));
  TENURE_RETURN_IF_ERROR(Find(library, "cuCtxPopCurrent_v2", driver.context_pop));
  TENURE_RETURN_IF_ERROR(Find(library, "cuStreamCreate", driver.stream_create));
  TENURE_RETURN_IF_ERROR(Find(library, "cuStreamDestroy_v2", driver.stream_destroy));
  TENURE_RETURN_IF_ERROR(Find(library, "cuStreamSynchronize", driver.stream_synchronize));
  TENURE_RETURN_IF_ERROR(Find(library, "cuEventCreate", driver.event_create));
  TENURE_RETURN_IF_ERROR(Find(library, "cuEventRecord", driver.event_record));
  TENURE_RETURN_IF_ERROR(Find(library, "cuEventSynchronize", driver.event_synchronize));
  TENURE_RETURN_IF_ERROR(Find(library, "cuEventDestroy_v2", driver.event_destroy));
  TENURE_RETURN_IF_ERROR(Find(library, "cuMemcpyDtoHAsync_v2", driver.copy_to_host));
  TENURE_RETURN_IF_ERROR(Find(library, "cuMemcpyHtoDAsync_v2", driver.copy_to_device));
  TENURE_RETURN_IF_ERROR(Find(library, "cuMemHostAlloc", driver.host_alloc));
  TENURE_RETURN_IF_ERROR(Find(library, "cuMemFreeHost", driver.host_free));
  TENURE_RETURN_IF_ERROR(Find(library, "cuGetErrorString", driver.error_string));
  const absl::Status status = CudaStatus(driver, driver.init(0), "starting the CUDA driver");
  if (!status.ok()) return status;
  return driver;
}

}  // namespace

absl::StatusOr<const CudaDriver*> LoadCudaDriver() {
  static const absl::StatusOr<CudaDriver> driver = Load();
  if (!driver.ok()) return driver.status();
  return &*driver;
}

absl::Status CudaStatus(const CudaDriver& driver, CudaResult result, const char* what) {
  if (result == 0) return absl::OkStatus();
  const char* text = nullptr;
  if (driver.error_string(result, &text) != 0 || text == nullptr) text = "unknown error";
  return Unavailable("{} failed: {} (CUDA error {})", what, text, result);
}

}  // namespace tenure::engine
