// The part of the CUDA driver that copies need, found at run time: this program links to no CUDA library and runs where
// there is none.
//
// The functions are those of the driver's C interface under its exported names; handles are opaque pointers, device
// addresses 64-bit integers. A test gives a table of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tenure::engine {

using CudaResult = int;  // 0: done.
using CudaDevice = int;
using CudaHandle = struct CudaOpaque*;  // A context, a stream or an event.

struct CudaDriver {
  CudaResult (*init)(unsigned flags) = nullptr;
  CudaResult (*device_get)(CudaDevice* device, int ordinal) = nullptr;
  CudaResult (*primary_context_retain)(CudaHandle* context, CudaDevice device) = nullptr;
  CudaResult (*primary_context_release)(CudaDevice device) = nullptr;
  CudaResult (*context_push)(CudaHandle context) = nullptr;
  CudaResult (*context_pop)(CudaHandle* context) = nullptr;
  CudaResult (*stream_create)(CudaHandle* stream, unsigned flags) = nullptr;
  CudaResult (*stream_destroy)(CudaHandle stream) = nullptr;
  CudaResult (*stream_synchronize)(CudaHandle stream) = nullptr;
  CudaResult (*event_create)(CudaHandle* event, unsigned flags) = nullptr;
  CudaResult (*event_record)(CudaHandle event, CudaHandle stream) = nullptr;
  CudaResult (*event_synchronize)(CudaHandle event) = nullptr;
  CudaResult (*event_destroy)(CudaHandle event) = nullptr;
  CudaResult (*copy_to_host)(void* to, uint64_t from, size_t bytes, CudaHandle stream) = nullptr;
  CudaResult (*copy_to_device)(uint64_t to, const void* from, size_t bytes, CudaHandle stream) = nullptr;
  CudaResult (*host_alloc)(void** memory, size_t bytes, unsigned flags) = nullptr;
  CudaResult (*host_free)(void* memory) = nullptr;
  CudaResult (*error_string)(CudaResult result, const char** text) = nullptr;
};

// The driver of this machine, loaded once and kept for the life of the process; Unavailable says what is missing.
absl::StatusOr<const CudaDriver*> LoadCudaDriver();

// OK for 0; otherwise Unavailable: what was tried, the driver's text and its number.
absl::Status CudaStatus(const CudaDriver& driver, CudaResult result, const char* what);

}  // namespace tenure::engine
