#include "tenure/transfer/ucx_library.h"

#include <dlfcn.h>
#include <signal.h>
#include <ucs/config/global_opts.h>
#include <ucs/debug/log_def.h>

#include <array>
#include <cstdio>

#include "tenure/base/log.h"
#include "tenure/base/status.h"

namespace tenure::transfer {
namespace {

constexpr const char* kLibrary = "libucp.so.0";

// UCX takes over the signals of crashes when it is loaded; they stay as the process has them.
class SignalsKept {
 public:
  SignalsKept() {
    for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], nullptr, &actions_[i]);
  }
  ~SignalsKept() {
    for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &actions_[i], nullptr);
  }
  SignalsKept(const SignalsKept&) = delete;
  SignalsKept& operator=(const SignalsKept&) = delete;

 private:
  static constexpr std::array<int, 4> kSignals = {SIGILL, SIGSEGV, SIGBUS, SIGFPE};
  std::array<struct sigaction, kSignals.size()> actions_;
};

// What UCX calls an error is mostly a peer that went away, which the posts report too.
ucs_log_func_rc_t LogUcxLine(const char*, unsigned, const char*, ucs_log_level_t level,
                             const ucs_log_component_config_t*, const char* format, va_list arguments) {
  if (level > UCS_LOG_LEVEL_WARN) return UCS_LOG_FUNC_RC_STOP;
  std::array<char, 512> line;
  std::vsnprintf(line.data(), line.size(), format, arguments);
  LogWarning("ucx: {}", line.data());
  return UCS_LOG_FUNC_RC_STOP;
}

template <typename Function>
absl::Status Find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function != nullptr) return absl::OkStatus();
  return Unavailable("{} has no {}; install UCX 1.13 or newer (Debian: libucx0)", kLibrary, name);
}

absl::Status CheckVersion(const UcxLibrary& ucx) {
  unsigned major = 0;
  unsigned minor = 0;
  unsigned release = 0;
  ucx.get_version(&major, &minor, &release);
  if (major == UCP_API_MAJOR && minor >= UCP_API_MINOR) return absl::OkStatus();
  return Unavailable("{} is UCX {}.{}.{}; install {}.{} or newer (Debian: libucx0)", kLibrary, major, minor, release,
                     UCP_API_MAJOR, UCP_API_MINOR);
}

absl::StatusOr<UcxLibrary> Load() {
  const SignalsKept signals;
  void* library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) {
    return Unavailable(
        "the ucx transport cannot load {} ({}); install UCX (Debian: libucx0), or use the local transport "
        "on one host",
        kLibrary, dlerror());
  }
  UcxLibrary ucx;
  TENURE_RETURN_IF_ERROR(Find(library, "ucp_get_version", ucx.get_version));
  TENURE_RETURN_IF_ERROR(Find(library, "ucp_init_version", ucx.init_version));
  TENURE_RETURN_IF_ERROR(Find(library, "ucp_cleanup", ucx.cleanup));
  TENURE_RETURN_IF_ERROR(Find(library, "ucp_config_read", ucx.config_read));
  TENURE_RETURN_IF_ERROR(Find(library, "ucp_config_modify", ucx.config_modify));
  TENURE_RETURN_IF_ERROR(Find(library, "ucp_config_release", ucx.config_release));
  TENURE_RETURN_IF_ERROR(Find(library, "ucp_worker_create", ucx.worker_create));
  TENURE_RETURN_IF_ERROR(Find(library, "ucp_worker_destroy", ucx.worker_destroy));
  TENURE_RETURN_IF_ERROR(Find(library, "ucp_worker_progress", ucx.worker_progress));
  TENURE_RETURN_IF_ERROR(Find(library, "ucp_worker_get_efd", ucx.worker_get_efd));
  TENURE_RETURN_IF_ERROR(Find(library, "ucp_worker_arm", ucx.worker_arm));
  TENURE_RETURN_IF_ERROR(Find(library, "ucp_worker_set_am_recv_handler", ucx.worker_set_am_recv_handler));
  TENURE_RETURN_IF_ERROR(Find(library, "ucp_listener_create", ucx.listener_create));
  TENURE_RETURN_IF_ERROR(Find(library, "ucp_listener_query", ucx.listener_query));
  TENURE_RETURN_IF_ERROR(Find(library, "ucp_mem_map", ucx.mem_map));
  TENURE_RETURN_IF_ERROR(Find(library, "ucp_mem_unmap", ucx.mem_unmap));
  TENURE_RETURN_IF_ERROR(Find(library, "ucp_mem_query", ucx.mem_query));
  TENURE_RETURN_IF_ERROR(Find(library, "ucp_rkey_pack", ucx.rkey_pack));
  TENURE_RETURN_IF_ERROR(Find(library, "ucp_rkey_buffer_release", ucx.rkey_buffer_release));
  TENURE_RETURN_IF_ERROR(Find(library, "ucp_ep_rkey_unpack", ucx.ep_rkey_unpack));
  TENURE_RETURN_IF_ERROR(Find(library, "ucp_rkey_destroy", ucx.rkey_destroy));
  TENURE_RETURN_IF_ERROR(Find(library, "ucp_ep_create", ucx.ep_create));
  TENURE_RETURN_IF_ERROR(Find(library, "ucp_ep_close_nbx", ucx.ep_close_nbx));
  TENURE_RETURN_IF_ERROR(Find(library, "ucp_put_nbx", ucx.put_nbx));
  TENURE_RETURN_IF_ERROR(Find(library, "ucp_am_send_nbx", ucx.am_send_nbx));
  TENURE_RETURN_IF_ERROR(Find(library, "ucp_ep_flush_nbx", ucx.ep_flush_nbx));
  TENURE_RETURN_IF_ERROR(Find(library, "ucp_request_check_status", ucx.request_check_status));
  TENURE_RETURN_IF_ERROR(Find(library, "ucp_request_free", ucx.request_free));
  // Of libucs, which libucp has loaded.
  TENURE_RETURN_IF_ERROR(Find(library, "ucs_status_string", ucx.status_string));
  decltype(&ucs_log_push_handler) push_handler = nullptr;
  TENURE_RETURN_IF_ERROR(Find(library, "ucs_log_push_handler", push_handler));
  TENURE_RETURN_IF_ERROR(CheckVersion(ucx));
  push_handler(&LogUcxLine);
  decltype(&ucs_global_opts_set_value) set_value = nullptr;
  TENURE_RETURN_IF_ERROR(Find(library, "ucs_global_opts_set_value", set_value));
  // A cache of which memory is a GPU's would listen to every mmap of this process; here the kind is known from
  // registering it.
  TENURE_RETURN_IF_ERROR(UcxStatus(ucx, set_value("MEMTYPE_CACHE", "n"), "turning off UCX's cache of memory types"));
  return ucx;
}

}  // namespace

absl::StatusOr<const UcxLibrary*> LoadUcx() {
  static const absl::StatusOr<UcxLibrary> ucx = Load();
  if (!ucx.ok()) return ucx.status();
  return &*ucx;
}

absl::Status UcxStatus(const UcxLibrary& ucx, ucs_status_t status, const char* what) {
  if (status == UCS_OK) return absl::OkStatus();
  return Unavailable("{} failed: {} (UCX status {})", what, ucx.status_string(status), static_cast<int>(status));
}

}  // namespace tenure::transfer
