#include "tenure/handoff/handoff_rig_testing.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "tenure/base/check.h"
#include "tenure/handoff/bootstrap_client.h"
#include "tenure/handoff/recorder_testing.h"
#include "tenure/pd/pull_layout.h"

namespace tenure::handoff {
namespace {

std::optional<double> Seconds(std::optional<absl::Duration> time) {
  return time ? std::optional<double>(absl::ToDoubleSeconds(*time)) : std::nullopt;
}

// Every rank has whole blocks, so that workers of all sizes pair.
pd::KvTraits Traits() { return {.total_kv_heads = 1, .is_mla = true, .groups = {pd::KvGroup{}}}; }

}  // namespace

pd::KvLayout WorkerMemory::Layout(int64_t tp_size, int64_t tp_rank) const {
  pd::KvLayout layout;
  layout.rank.tp_size = tp_size;
  layout.rank.tp_rank = tp_rank;
  pd::KvRegion& region = layout.regions.emplace_back();
  region.layer_name = "layer";
  region.base_addr = reinterpret_cast<uint64_t>(bytes_.data());
  region.block_bytes = kBlockBytes;
  region.kv_bytes = kBlockBytes;
  region.num_blocks = kBlocks;
  return layout;
}

transfer::MemoryRange WorkerMemory::Range() const {
  return {.address = reinterpret_cast<uint64_t>(bytes_.data()), .size = bytes_.size()};
}

// The thread sanitizer looks at neither: what orders a transport's write and these are messages that it cannot follow.
__attribute__((no_sanitize("thread"))) void WorkerMemory::Fill(int64_t block, uint8_t value) {
  volatile uint8_t* bytes = bytes_.data() + block * kBlockBytes;
  for (int64_t i = 0; i < kBlockBytes; ++i) bytes[i] = value;
}

__attribute__((no_sanitize("thread"))) bool WorkerMemory::Holds(int64_t block, uint8_t value) const {
  const volatile uint8_t* bytes = bytes_.data() + block * kBlockBytes;
  for (int64_t i = 0; i < kBlockBytes; ++i) {
    if (bytes[i] != value) return false;
  }
  return true;
}

TestPrefill::TestPrefill(BootstrapServer& bootstrap, transfer::MemoryNetwork& network, const Clock& clock,
                         const TestPrefillOptions& options)
    : transport_(std::make_shared<transfer::MemoryTransport>(network, clock)) {
  TENURE_CHECK(transport_->Register({memory_.Range()}).ok());
  PrefillEndpointOptions endpoint;
  endpoint.producer.handoff.lease = options.lease;
  endpoint.messages_waiting_max = options.messages_waiting_max;
  endpoint.message_bytes_waiting_max = options.message_bytes_waiting_max;
  auto started = PrefillEndpoint::Start(endpoint, memory_.Layout(options.tp_size, options.tp_rank), Traits(),
                                        transport_, board_, clock);
  TENURE_CHECK(started.ok());
  endpoint_ = std::move(started).value();
  pd::WorkerRegistration worker;
  worker.engine_id = options.engine_id;
  worker.tp_rank = options.tp_rank;
  worker.address = endpoint_->address();
  if (options.publishes_lease) {
    worker.kv_lease_duration = Seconds(options.published_lease ? options.published_lease : options.lease);
  }
  worker.incarnation = options.incarnation;
  worker.tp_size = options.tp_size;
  worker.pp_size = 1;
  TENURE_CHECK(BootstrapClient::Create(BootstrapUrl(bootstrap), {}).value()->Register(worker).ok());
}

void TestPrefill::Announce(const std::string& id) {
  pd::StepOrders orders;
  orders.announced.push_back({.request_id = "p-" + id, .transfer_id = id});
  endpoint_->RecordStep(std::move(orders));
}

void TestPrefill::Finish(const std::string& id, std::vector<int64_t> blocks) {
  pd::StepOrders orders;
  orders.finished.push_back({.request_id = "p-" + id, .transfer_id = id, .blocks = {std::move(blocks)}});
  endpoint_->RecordStep(std::move(orders));
}

void TestPrefill::Abort(const std::string& id) {
  pd::StepOrders orders;
  orders.aborted.push_back({.request_id = "p-" + id, .transfer_id = id});
  endpoint_->RecordStep(std::move(orders));
}

void TestPrefill::PrefillAndWait(const std::string& id, std::vector<int64_t> blocks, size_t held) {
  pd::StepOrders orders;
  orders.announced.push_back({.request_id = "p-" + id, .transfer_id = id});
  orders.finished.push_back({.request_id = "p-" + id, .transfer_id = id, .blocks = {std::move(blocks)}});
  endpoint_->RecordStep(std::move(orders));
  TENURE_CHECK(WaitUntil([&] { return endpoint_->TakeStats().transfers >= held; }));
}

std::vector<std::string> TestPrefill::WaitForFinished(size_t count) {
  WaitUntil([&] {
    std::vector<std::string> finished = endpoint_->TakeFinished();
    std::move(finished.begin(), finished.end(), std::back_inserter(finished_));
    return finished_.size() >= count;
  });
  return finished_;
}

int64_t TestPrefill::renewals() {
  renewals_ += endpoint_->TakeStats().producer.renewals;
  return renewals_;
}

TestDecode::TestDecode(transfer::MemoryNetwork& network, const Clock& clock, std::shared_ptr<MismatchBoard> board,
                       const TestDecodeOptions& options)
    : transport_(std::make_shared<transfer::MemoryTransport>(network, clock)) {
  TENURE_CHECK(transport_->Register({memory_.Range()}).ok());
  DecodeEndpointOptions endpoint;
  pd::WritePullLayout(memory_.Layout(), endpoint.consumer.worker);
  endpoint.consumer.worker.remote_hostname = "decode";
  endpoint.consumer.worker.kv_lease_duration = Seconds(options.lease);
  endpoint.consumer.late_write_max = options.late_write_max;
  endpoint.links.channels.channels_max = static_cast<size_t>(options.channels_max);
  auto started = DecodeEndpoint::Start(endpoint, transport_, std::move(board), clock);
  TENURE_CHECK(started.ok());
  endpoint_ = std::move(started).value();
}

pd::PullOrder TestDecode::Order(const std::string& id, const std::string& bootstrap, std::vector<int64_t> blocks,
                                absl::Duration remaining, const std::string& engine_id) {
  return {.request_id = "d-" + id,
          .transfer_id = id,
          .engine_id = engine_id,
          .bootstrap_address = bootstrap,
          .blocks = {std::move(blocks)},
          .remaining = remaining};
}

void TestDecode::Pull(std::vector<pd::PullOrder> orders) {
  pd::StepOrders step;
  step.pulls = std::move(orders);
  endpoint_->StartPulls(std::move(step));
}

TestDecode::Ended TestDecode::WaitForEnded(size_t count) {
  WaitUntil([&] {
    DecodeOutcomes outcomes = endpoint_->TakeOutcomes();
    std::move(outcomes.received.begin(), outcomes.received.end(), std::back_inserter(ended_.received));
    for (const pd::FailedPull& failed : outcomes.failed) ended_.failed[failed.request_id] = failed.error;
    return ended_.received.size() + ended_.failed.size() >= count;
  });
  return ended_;
}

std::unique_ptr<BootstrapServer> StartTestBootstrap(std::function<std::string()> status, int port) {
  auto server = BootstrapServer::Start({.address = {.host = "127.0.0.1", .port = port}, .status = std::move(status)});
  TENURE_CHECK(server.ok());
  return std::move(server).value();
}

std::string BootstrapUrl(const BootstrapServer& server) { return fmt::format("http://127.0.0.1:{}", server.port()); }

}  // namespace tenure::handoff
