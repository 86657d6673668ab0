#include "tenure/cli/serve_options.h"

#include <grp.h>

#include <algorithm>
#include <fstream>
#include <string_view>

#include "tenure/base/parse.h"
#include "tenure/base/status.h"
#include "tenure/cli/serve_config.h"
#include "tenure/daemon/listening_socket.h"

namespace tenure::cli {
namespace {

constexpr Bytes kSlabBytes{int64_t{64} << 20};
constexpr int64_t kClientsMax = 100'000;
constexpr absl::Duration kDrainDefault = absl::Seconds(10);

// A number of a control group file, or nothing: no such file, or "max".
std::optional<int64_t> ReadNumber(const std::string& path) {
  std::ifstream file(path);
  int64_t number = 0;
  if (file >> number) return number;
  return std::nullopt;
}

// This process's control group (version 2), such as "/system.slice/tenure.service"; empty for the root or none.
std::string ControlGroup() {
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("0::/")) return line.substr(line.size() > 4 ? 3 : 4);
  }
  return "";
}

// What the limits of the control group and of those around it leave.
Bytes LeftInControlGroups() {
  Bytes left(INT64_MAX);
  for (std::string group = ControlGroup();; group.resize(group.rfind('/'))) {
    const std::string folder = "/sys/fs/cgroup" + group;
    const std::optional<int64_t> limit = ReadNumber(folder + "/memory.max");
    const std::optional<int64_t> used = ReadNumber(folder + "/memory.current");
    if (limit.has_value() && used.has_value()) left = std::min(left, Bytes(std::max(int64_t{0}, *limit - *used)));
    if (group.empty()) return left;
  }
}

absl::StatusOr<uint32_t> GroupId(const std::string& name) {
  if (const absl::StatusOr<int64_t> number = ParseCount("--group", name, 0, UINT32_MAX - 1); number.ok()) {
    return static_cast<uint32_t>(*number);
  }
  // Not thread-safe; the program has one thread when it reads its options.
  const struct group* found = getgrnam(name.c_str());
  if (found == nullptr)
    return InvalidArgument("--group {}: there is no such group; give a name of the group database", name);
  return found->gr_gid;
}

absl::StatusOr<store::PoolMode> Mode(const std::string& text) {
  if (text.empty() || text == "closed") return store::PoolMode::kClosed;
  if (text == "independent") return store::PoolMode::kIndependent;
  return InvalidArgument("--mode {}: give closed or independent", text);
}

absl::StatusOr<Bytes> Memory(const std::string& text, Bytes available) {
  if (text.empty()) return InvalidArgument("--memory is not given; give the size of the pool, such as 8GiB");
  TENURE_ASSIGN_OR_RETURN(const Bytes asked, ParseSize("--memory", text));
  const Bytes memory = asked - asked % kSlabBytes;
  if (memory < kSlabBytes) {
    return InvalidArgument("--memory {}: less than one slab; give at least {} MiB", text, kSlabBytes.value() >> 20);
  }
  if (memory > available) {
    return InvalidArgument("--memory {}: this machine has {} MiB available; give less, or free some", text,
                           available.value() >> 20);
  }
  return memory;
}

}  // namespace

Bytes MemoryAvailable() {
  std::ifstream meminfo("/proc/meminfo");
  int64_t available = INT64_MAX;
  for (std::string key; meminfo >> key;) {
    int64_t kibibytes = 0;
    if (key == "MemAvailable:" && meminfo >> kibibytes) available = kibibytes << 10;
  }
  return std::min(Bytes(available), LeftInControlGroups());
}

absl::StatusOr<ServeOptions> ReadServeOptions(const ServeArguments& arguments, Bytes memory_available) {
  TENURE_ASSIGN_OR_RETURN(const ServeArguments given, WithConfigFile(arguments));
  ServeOptions options;
  if (given.socket.empty()) return InvalidArgument("--socket is not given; give the path that clients connect to");
  TENURE_RETURN_IF_ERROR(daemon::CheckSocketPath(given.socket));
  options.socket = given.socket;
  options.slab_bytes = kSlabBytes;
  TENURE_ASSIGN_OR_RETURN(options.mode, Mode(given.mode));
  if (!given.group.empty()) {
    TENURE_ASSIGN_OR_RETURN(options.group, GroupId(given.group));
  }
  if (!given.metrics.empty()) {
    TENURE_ASSIGN_OR_RETURN(options.metrics, http::ParseHttpAddress("--metrics", given.metrics));
  }
  options.drain_timeout = kDrainDefault;
  if (!given.drain_timeout.empty()) {
    TENURE_ASSIGN_OR_RETURN(options.drain_timeout, ParseDuration("--drain-timeout", given.drain_timeout));
  }
  options.clients_max = 1024;
  if (!given.clients_max.empty()) {
    TENURE_ASSIGN_OR_RETURN(const int64_t clients, ParseCount("--clients-max", given.clients_max, 1, kClientsMax));
    options.clients_max = static_cast<int>(clients);
  }
  if (!given.held_bytes_max.empty()) {
    TENURE_ASSIGN_OR_RETURN(options.held_bytes_max, ParseSize("--held-bytes-max", given.held_bytes_max));
    if (options.held_bytes_max < kSlabBytes) {
      return InvalidArgument("--held-bytes-max {}: less than the largest object; give at least {} MiB",
                             given.held_bytes_max, kSlabBytes.value() >> 20);
    }
  }
  options.huge_pages = given.huge_pages;
  // Last, since the others are mistakes on any machine.
  TENURE_ASSIGN_OR_RETURN(options.memory,
                          Memory(given.memory, options.huge_pages ? Bytes(INT64_MAX) : memory_available));
  return options;
}

}  // namespace tenure::cli
