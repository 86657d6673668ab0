// The part of UCX that transfers need, found at run time: this program links to no UCX and runs where there is none.
//
// The functions are those of libucp's C interface under their exported names. UCX's own log lines go to base/log.h
// instead of standard output, and its handlers of fatal signals are taken out again. Its hooks in mmap and madvise
// stay, unless UCX_MEM_MMAP_HOOK_MODE=none stands in the environment.
#pragma once

#include <ucp/api/ucp.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tenure::transfer {

struct UcxLibrary {
  decltype(&ucp_get_version) get_version = nullptr;
  decltype(&ucp_init_version) init_version = nullptr;
  decltype(&ucp_cleanup) cleanup = nullptr;
  decltype(&ucp_config_read) config_read = nullptr;
  decltype(&ucp_config_modify) config_modify = nullptr;
  decltype(&ucp_config_release) config_release = nullptr;
  decltype(&ucp_worker_create) worker_create = nullptr;
  decltype(&ucp_worker_destroy) worker_destroy = nullptr;
  decltype(&ucp_worker_progress) worker_progress = nullptr;
  decltype(&ucp_worker_get_efd) worker_get_efd = nullptr;
  decltype(&ucp_worker_arm) worker_arm = nullptr;
  decltype(&ucp_worker_set_am_recv_handler) worker_set_am_recv_handler = nullptr;
  decltype(&ucp_listener_create) listener_create = nullptr;
  decltype(&ucp_listener_query) listener_query = nullptr;
  decltype(&ucp_mem_map) mem_map = nullptr;
  decltype(&ucp_mem_unmap) mem_unmap = nullptr;
  decltype(&ucp_mem_query) mem_query = nullptr;
  decltype(&ucp_rkey_pack) rkey_pack = nullptr;
  decltype(&ucp_rkey_buffer_release) rkey_buffer_release = nullptr;
  decltype(&ucp_ep_rkey_unpack) ep_rkey_unpack = nullptr;
  decltype(&ucp_rkey_destroy) rkey_destroy = nullptr;
  decltype(&ucp_ep_create) ep_create = nullptr;
  decltype(&ucp_ep_close_nbx) ep_close_nbx = nullptr;
  decltype(&ucp_put_nbx) put_nbx = nullptr;
  decltype(&ucp_am_send_nbx) am_send_nbx = nullptr;
  decltype(&ucp_ep_flush_nbx) ep_flush_nbx = nullptr;
  decltype(&ucp_request_check_status) request_check_status = nullptr;
  decltype(&ucp_request_free) request_free = nullptr;
  decltype(&ucs_status_string) status_string = nullptr;
};

// UCX of this machine, loaded once and kept for the life of the process; Unavailable says what is missing.
absl::StatusOr<const UcxLibrary*> LoadUcx();

// Of a pointer that is either a request, nothing, or an error in disguise.
inline bool IsRequest(ucs_status_ptr_t pointer) {
  const auto value = reinterpret_cast<uintptr_t>(pointer);
  return value != 0 && value < static_cast<uintptr_t>(UCS_ERR_LAST);
}
inline ucs_status_t StatusOf(ucs_status_ptr_t pointer) {
  return IsRequest(pointer) ? UCS_INPROGRESS : static_cast<ucs_status_t>(reinterpret_cast<intptr_t>(pointer));
}

// OK for UCS_OK; otherwise Unavailable: what was tried and UCX's text.
absl::Status UcxStatus(const UcxLibrary& ucx, ucs_status_t status, const char* what);

}  // namespace tenure::transfer
