#include "tests/conformance/daemon_pools.h"

#include <memory>
#include <string>
#include <utility>

#include "tenure/base/clock.h"
#include "tenure/daemon/daemon_pool.h"
#include "tenure/daemon/test_daemon_testing.h"

namespace tenure::store::conformance {
namespace {

class DaemonUnderTest final : public PoolUnderTest {
 public:
  DaemonUnderTest(const PoolSetup& setup, PoolMode mode) {
    daemon::TestDaemonOptions options;
    options.capacity = setup.capacity;
    options.slab_bytes = setup.slab_bytes;
    options.mode = mode;
    const std::string path = folder_.File("pool.sock");
    daemon_ = std::make_unique<daemon::TestDaemon>(path, options, clock_);
    daemon::DaemonPoolOptions client;
    client.socket_path = path;
    client.call_deadline = daemon::kTestPatience;
    pool_ = daemon::DaemonPool::Connect(client, clock_).value();
  }

  Pool& pool() override { return *pool_; }
  void Advance(absl::Duration by) override { clock_.Advance(by); }
  void Settle() override {
    // What the client said without waiting for an answer has arrived when the next answer does.
    pool_->Stats();
    while (daemon_->pool().Maintain()) {
    }
  }
  bool Corrupt(const ObjectKey& key) override {
    // The client's first namespace is the daemon's first, and so on.
    return daemon_->Corrupt(key);
  }

 private:
  const daemon::TempFolder folder_;
  ManualClock clock_;
  std::unique_ptr<daemon::TestDaemon> daemon_;
  std::unique_ptr<daemon::DaemonPool> pool_;
};

PoolFactory Daemon(std::string name, PoolMode mode) {
  return {.name = std::move(name),
          .closed = mode == PoolMode::kClosed,
          .has_bytes = true,
          .known_differences = {},
          .make = [mode](const PoolSetup& setup) { return std::make_unique<DaemonUnderTest>(setup, mode); }};
}

}  // namespace

std::vector<PoolFactory> DaemonPools() {
  return {Daemon("DaemonClosed", PoolMode::kClosed), Daemon("DaemonIndependent", PoolMode::kIndependent)};
}

}  // namespace tenure::store::conformance
