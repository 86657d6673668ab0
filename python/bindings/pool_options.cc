#include "bindings/pool_options.h"

#include <unistd.h>

#include "bindings/errors.h"
#include "tenure/base/parse.h"
#include "tenure/base/status.h"

namespace tenure::python {

int64_t BytesFrom(std::string_view what, const SizeArgument& size) {
  if (const auto* bytes = std::get_if<int64_t>(&size)) return *bytes;
  return ValueOrThrow(ParseSize(what, std::get<std::string>(size))).value();
}

store::PoolMode ModeFrom(const std::string& mode) {
  if (mode == "closed") return store::PoolMode::kClosed;
  if (mode == "independent") return store::PoolMode::kIndependent;
  Throw(InvalidArgument("mode is \"{}\"; use closed or independent", mode.substr(0, 64)));
}

void CheckMachine(int64_t capacity) {
  const int64_t machine = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  if (capacity > machine) {
    Throw(InvalidArgument("capacity is {} bytes; this machine has {}: use less", capacity, machine));
  }
}

}  // namespace tenure::python
