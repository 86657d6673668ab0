// Bytes as the conversations of two clients with one daemon: messages well formed and not, ends of clients, passing
// time. Nothing crashes, what a client holds stays within its maxima, and when both are gone nothing is held.
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "tenure/base/check.h"
#include "tenure/daemon/daemon_session.h"

namespace tenure::daemon {
namespace {

class World {
 public:
  World() {
    store::EmbeddedPoolOptions options;
    options.capacity = Bytes(64 << 10);
    options.slab_bytes = Bytes(4 << 10);
    options.memory = store::MemoryKind::kVirtual;
    options.shards = 2;
    options.objects_max = 64;
    options.namespaces_max = 16;
    pool_ = store::EmbeddedPool::Create(options, clock_).value();
    state_.limits = {.held_bytes_max = Bytes(16 << 10), .held_objects_max = 16, .leased_keys_max = 32};
    state_.memory = options.capacity;
    state_.object_max = options.slab_bytes;
    for (auto& session : sessions_) session = Connect();
  }

  // One message from `input`: who, of what type, with how many bytes of body.
  bool Step(std::span<const std::byte>& input) {
    if (input.size() < 3) return false;
    const auto who = std::to_integer<size_t>(input[0]) % 2;
    const auto type = std::to_integer<uint16_t>(input[1]) % 20;
    const size_t size = std::min<size_t>(std::to_integer<size_t>(input[2]) * 2, input.size() - 3);
    const std::span<const std::byte> body = input.subspan(3, size);
    input = input.subspan(3 + size);
    if (type == 0) {
      sessions_[who] = Connect();
    } else if (type == 19) {
      clock_.Advance(absl::Milliseconds(static_cast<int64_t>(size) * 7));
      pool_->Maintain();
    } else {
      std::vector<std::byte> answer;
      const FrameHeader header{
          .body_bytes = static_cast<uint32_t>(size), .type = static_cast<uint16_t>(type), .request = 1};
      if (sessions_[who]->Handle(header, body, answer) == DaemonSession::Next::kOver) sessions_[who] = Connect();
      if (!answer.empty()) CheckAnswer(answer);
      const ClientHoldings& holdings = sessions_[who]->holdings();
      TENURE_CHECK(holdings.held_bytes() <= state_.limits.held_bytes_max);
      TENURE_CHECK(holdings.held_objects() <= state_.limits.held_objects_max);
      TENURE_CHECK(holdings.leased_keys() <= state_.limits.leased_keys_max);
    }
    return true;
  }

  void End() {
    for (auto& session : sessions_) session.reset();
    const store::PoolStats stats = pool_->Stats();
    TENURE_CHECK(stats.held.writing == 0 && stats.held.pinned == 0);
  }

 private:
  std::unique_ptr<DaemonSession> Connect() {
    auto session = std::make_unique<DaemonSession>(*pool_, clock_, state_);
    std::vector<std::byte> frame;
    AppendFrame(HelloRequest(), 1, frame);
    std::vector<std::byte> answer;
    session->Handle(**ParseHeader(frame), std::span(frame).subspan(FrameHeader::kBytes), answer);
    frame.clear();
    AppendFrame(OpenNamespaceRequest{.prefix = "a"}, 1, frame);
    session->Handle(**ParseHeader(frame), std::span(frame).subspan(FrameHeader::kBytes), answer);
    return session;
  }
  static void CheckAnswer(const std::vector<std::byte>& answer) {
    const FrameHeader header = **ParseHeader(answer);
    TENURE_CHECK(header.request == 1 && header.body_bytes == answer.size() - FrameHeader::kBytes);
  }

  ManualClock clock_;
  std::unique_ptr<store::EmbeddedPool> pool_;
  DaemonState state_;
  std::array<std::unique_ptr<DaemonSession>, 2> sessions_;
};

}  // namespace
}  // namespace tenure::daemon

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tenure::daemon::World world;
  auto input = std::as_bytes(std::span(data, size));
  while (world.Step(input)) {
  }
  world.End();
  return 0;
}
