// Any bytes as a step plan, as a worker reads them: no crash, no memory beyond the bytes' share, and what was
// understood is written back as it was read.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "tenure/engine/step_plan.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto plan = tenure::engine::DecodeStepPlan(bytes);
  if (plan.ok() && tenure::engine::EncodeStepPlan(*plan) != bytes) std::abort();
  return 0;
}
