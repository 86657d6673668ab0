// A Mooncake pool for an engine whose KV lies in a device's memory: Mooncake reads and writes that memory itself, as
// with stock connectors, instead of staging memory of the host.
//
// Puts and gets return when Mooncake's call has ended, however late, and where it gave up transfers that may go on
// (MayGoOn) late_bytes_max after that: by then nothing reads or writes what they named, and nothing did before they
// were called. So a late save keeps its blocks pinned and a late load its blocks from other tokens (ARCHITECTURE.md, "A
// device's memory is named to Mooncake"). What Mooncake is asked besides has the pool's call_timeout. A block is one
// object of as many pieces as it has in memory. Everything else is the pool's own. Thread-safe; call without the
// interpreter's lock.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bindings/mooncake_pool.h"
#include "bindings/pool_handle.h"
#include "tenure/engine/copier.h"

namespace tenure::python {

class DirectMooncake final : public DevicePool {
 public:
  // Registers `regions` of `device`'s memory with Mooncake, which stays mapped until End. Unavailable when Mooncake
  // does not take one of them; then it knows of none. With or without the interpreter's lock.
  static absl::StatusOr<std::shared_ptr<DirectMooncake>> Create(std::shared_ptr<MooncakePool> pool,
                                                                std::shared_ptr<engine::Copier> device,
                                                                std::vector<MooncakePiece> regions);
  ~DirectMooncake() override { End(); }

  void End() override;

  // Precondition of both: every segment lies in a registered region. An object that a get does not answer with kPresent
  // may have been written in part.
  absl::Status Put(std::span<const store::PutObject> objects, std::span<store::PutAnswer> answers) override;
  absl::Status Get(std::span<const store::GetObject> objects, std::span<store::KeyAnswer> answers) override;

 private:
  DirectMooncake(std::shared_ptr<MooncakePool> pool, std::shared_ptr<engine::Copier> device,
                 std::vector<MooncakePiece> regions)
      : DevicePool(*pool), mooncake_(std::move(pool)), device_(std::move(device)), regions_(std::move(regions)) {}
  // Runs the one step of `copy` that touches the device's memory to its end.
  template <typename MooncakeCopy>
  absl::Status Copy(const char* what, std::shared_ptr<MooncakeCopy> copy);

  const std::shared_ptr<MooncakePool> mooncake_;
  const std::shared_ptr<engine::Copier> device_;
  const MonotonicClock clock_;
  std::vector<MooncakePiece> regions_;  // Empty after End.
};

}  // namespace tenure::python
