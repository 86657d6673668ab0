// Prefill and decode workers of one process on loopback, with real memory behind them. For tests only.
//
// One region of blocks; a block's bytes are all the same, and which byte is the test's to choose.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tenure/base/clock.h"
#include "tenure/handoff/bootstrap_server.h"
#include "tenure/handoff/decode_endpoint.h"
#include "tenure/handoff/mismatch_board.h"
#include "tenure/handoff/prefill_endpoint.h"
#include "tenure/pd/kv_layout.h"
#include "tenure/transfer/memory_transport_testing.h"

namespace tenure::handoff {

// A worker's blocks and how a layout tells of them.
class WorkerMemory {
 public:
  static constexpr int64_t kBlockBytes = 64;
  static constexpr int64_t kBlocks = 4096;

  WorkerMemory() : bytes_(kBlockBytes * kBlocks) {}
  pd::KvLayout Layout(int64_t tp_size = 1, int64_t tp_rank = 0) const;
  transfer::MemoryRange Range() const;
  void Fill(int64_t block, uint8_t value);
  bool Holds(int64_t block, uint8_t value) const;

 private:
  std::vector<uint8_t> bytes_;
};

struct TestPrefillOptions {
  std::optional<absl::Duration> lease = std::nullopt;
  std::optional<absl::Duration> published_lease = std::nullopt;  // What the bootstrap server is told; none: the lease.
  bool publishes_lease = true;
  int64_t tp_size = 1;
  int64_t tp_rank = 0;
  std::string engine_id = "prefill";
  std::optional<int64_t> incarnation = std::nullopt;
  size_t messages_waiting_max = 65'536;
  size_t message_bytes_waiting_max = size_t{256} << 20;
};

// A prefill worker that is registered with `bootstrap`.
class TestPrefill {
 public:
  TestPrefill(BootstrapServer& bootstrap, transfer::MemoryNetwork& network, const Clock& clock,
              const TestPrefillOptions& options = {});

  void Announce(const std::string& id);
  // The prefill ends with its KV in these blocks.
  void Finish(const std::string& id, std::vector<int64_t> blocks);
  void Abort(const std::string& id);
  // Both, and waits until the endpoint holds so many transfers: time that passes then counts for them.
  void PrefillAndWait(const std::string& id, std::vector<int64_t> blocks, size_t held);
  // Waits until so many requests have been freed in all; returns all of them.
  std::vector<std::string> WaitForFinished(size_t count);
  PrefillEndpoint& endpoint() { return *endpoint_; }
  transfer::MemoryTransport& transport() { return *transport_; }
  WorkerMemory& memory() { return memory_; }
  MismatchBoard& board() { return *board_; }
  // Messages of decoders' schedulers so far.
  int64_t renewals();

 private:
  WorkerMemory memory_;
  const std::shared_ptr<MismatchBoard> board_ = std::make_shared<MismatchBoard>();
  std::shared_ptr<transfer::MemoryTransport> transport_;
  std::unique_ptr<PrefillEndpoint> endpoint_;
  std::vector<std::string> finished_;
  int64_t renewals_ = 0;
};

struct TestDecodeOptions {
  std::optional<absl::Duration> lease = std::nullopt;
  absl::Duration late_write_max = absl::Milliseconds(200);
  int64_t channels_max = 4096;
};

class TestDecode {
 public:
  TestDecode(transfer::MemoryNetwork& network, const Clock& clock, std::shared_ptr<MismatchBoard> board = nullptr,
             const TestDecodeOptions& options = {});

  // A pull of transfer `id`, from the engine "prefill" unless said otherwise.
  static pd::PullOrder Order(const std::string& id, const std::string& bootstrap, std::vector<int64_t> blocks,
                             absl::Duration remaining = absl::Minutes(5), const std::string& engine_id = "prefill");
  void Pull(std::vector<pd::PullOrder> orders);
  // Waits until so many requests have ended in all; returns all that have, and what was said of each.
  struct Ended {
    std::vector<std::string> received;
    std::map<std::string, std::string> failed;  // With their errors.
  };
  Ended WaitForEnded(size_t count);
  DecodeEndpoint& endpoint() { return *endpoint_; }
  WorkerMemory& memory() { return memory_; }

 private:
  WorkerMemory memory_;
  std::shared_ptr<transfer::MemoryTransport> transport_;
  std::unique_ptr<DecodeEndpoint> endpoint_;
  Ended ended_;
};

std::unique_ptr<BootstrapServer> StartTestBootstrap(std::function<std::string()> status = nullptr, int port = 0);
std::string BootstrapUrl(const BootstrapServer& server);

}  // namespace tenure::handoff
