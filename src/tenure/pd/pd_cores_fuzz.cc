// Any order of events at a Producer and at a Consumer, any bytes among them: no crash, P's requests finish once, D's
// have one outcome each, and nothing is left when time has passed.
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "tenure/base/check.h"
#include "tenure/pd/consumer.h"
#include "tenure/pd/producer.h"
#include "tenure/pd/renewal.h"
#include "tenure/pd/reply.h"
#include "tenure/pd/tiny_model_testing.h"

namespace tenure::pd {
namespace {

constexpr int64_t kBlocks = 8;
constexpr WorkerRank kRank = {1, 0, 1, 0};

class Events {
 public:
  explicit Events(std::string_view bytes) : bytes_(bytes) {}
  bool empty() const { return bytes_.empty(); }
  uint8_t Byte() {
    if (bytes_.empty()) return 0;
    const auto byte = static_cast<uint8_t>(bytes_.front());
    bytes_.remove_prefix(1);
    return byte;
  }
  std::string Id(const char* kind) { return kind + std::to_string(Byte() % 4); }
  std::vector<std::vector<int64_t>> Blocks() {
    std::vector<std::vector<int64_t>> groups(Byte() % 3);
    for (std::vector<int64_t>& ids : groups) {
      for (int count = Byte() % 4; count > 0; --count) ids.push_back(static_cast<int8_t>(Byte()) % (kBlocks + 2));
    }
    return groups;
  }
  std::string_view Rest() {
    const size_t size = std::min<size_t>(bytes_.size(), Byte());
    const std::string_view some = bytes_.substr(0, size);
    bytes_.remove_prefix(some.size());
    return some;
  }

 private:
  std::string_view bytes_;
};

class PrefillSide {
 public:
  void Event(Events& events, MonotonicTime now) {
    StepOrders orders;
    switch (events.Byte() % 7) {
      case 0: {
        const std::string request = "p" + std::to_string(++last_request_);
        orders.announced.push_back({request, events.Id("x")});
        announced_.push_back(orders.announced[0]);
        return Take(producer_->RecordStep(orders, now));
      }
      case 1:
      case 2: {
        if (announced_.empty()) return;
        const TransferOrder ended = announced_.back();
        announced_.pop_back();
        if (events.Byte() % 2 == 0) {
          orders.aborted.push_back(ended);
        } else {
          orders.finished.push_back({ended.request_id, ended.transfer_id, events.Blocks()});
          running_.insert(ended.request_id);
        }
        return Take(producer_->RecordStep(orders, now));
      }
      case 3: {
        Pull pull = TinyPull(TinyLayout(kRank, 1 << 24, kBlocks), "d", 30);
        for (int count = events.Byte() % 4; count > 0; --count) {
          pull.requests.push_back({"d" + std::to_string(count), events.Id("x"), events.Blocks()});
        }
        if (events.Byte() % 2 == 0) pull.answer_within = 1 + events.Byte();
        return Take(producer_->OnMessage(events.Id("peer") + std::to_string(++last_peer_), *EncodePull(pull), now));
      }
      case 4:
        return Take(producer_->OnMessage("renewer", *EncodeRenewal({{events.Id("x")}, std::nullopt}), now));
      case 5:
        return Take(producer_->OnMessage(events.Id("raw"), events.Rest(), now));
      default:
        return EndWrite(events.Byte(), now);
    }
  }
  void Scan(MonotonicTime now) { Take(producer_->Scan(now)); }
  // Every prefill and write ends, every lease passes.
  void ExpectEmptyInTheEnd(MonotonicTime now) {
    StepOrders orders;
    orders.aborted = announced_;
    Take(producer_->RecordStep(orders, now));
    while (!writes_.empty()) EndWrite(0, now);
    for (int round = 0; round < 3; ++round) Scan(now = now + absl::Seconds(500));
    TENURE_CHECK(running_.empty());
    TENURE_CHECK(producer_->num_transfers() + producer_->num_pulls() + producer_->num_writes() == 0);
  }

 private:
  void EndWrite(uint8_t how, MonotonicTime now) {
    if (writes_.empty()) return;
    const WriteId write = writes_.back();
    writes_.pop_back();
    WriteResult result;
    if (how % 3 != 0) result = {absl::UnavailableError("gone"), how % 3 == 1};
    Take(producer_->OnWriteDone(write, result, now));
  }
  void Take(const ProducerActions& actions) {
    for (const HandoffWrite& write : actions.writes) writes_.push_back(write.id);
    for (const PeerReply& reply : actions.replies) TENURE_CHECK(DecodeReply(reply.bytes).ok());
    for (const std::string& request_id : actions.finished_requests) TENURE_CHECK(running_.erase(request_id) == 1);
  }

  static ProducerOptions Options() {
    ProducerOptions options;
    options.handoff.lease = absl::Seconds(30);
    return options;
  }
  absl::StatusOr<Producer> producer_ = Producer::Create(Options(), TinyLayout(kRank, 1 << 20, kBlocks), TinyTraits());
  int last_request_ = 0;
  int last_peer_ = 0;
  std::vector<TransferOrder> announced_;
  std::set<std::string> running_;
  std::vector<WriteId> writes_;
};

class DecodeSide {
 public:
  void Event(Events& events, MonotonicTime now) {
    switch (events.Byte() % 6) {
      case 0: {
        const std::string id = events.Id("d");
        auto blocks = events.Blocks();
        if (!blocks.empty()) running_.insert(id);
        return Take(consumer_->StartPulls(
            {{id, "x", events.Id("e"), events.Id("b"), std::move(blocks), absl::Seconds(events.Byte())}}, now));
      }
      case 1:
        return AnswerQuery(events, now);
      case 2:
        if (last_channel_ == 0) return;
        return Take(consumer_->OnReply(AnyChannel(events), events.Rest(), now));
      case 3: {
        if (last_channel_ == 0) return;
        Reply reply;
        reply.status = static_cast<ReplyStatus>(events.Byte() % 3);
        reply.ok_requests.push_back(events.Id("d"));
        reply.err_requests.push_back(events.Id("d"));
        return Take(consumer_->OnReply(AnyChannel(events), *EncodeReply(reply), now));
      }
      case 4:
        if (last_channel_ == 0) return;
        return Take(consumer_->OnNotSent(AnyChannel(events), "gone", now));
      default:
        if (last_channel_ == 0) return;
        return Take(consumer_->OnChannelFailed(AnyChannel(events), "gone", now));
    }
  }
  void Tick(MonotonicTime now) { Take(consumer_->Tick(now)); }
  void ExpectEmptyInTheEnd() {
    while (consumer_->NextTick() != MonotonicTime::Max()) Tick(consumer_->NextTick());
    TENURE_CHECK(running_.empty());
    TENURE_CHECK(consumer_->num_requests() + consumer_->num_channels() == 0);
  }

 private:
  ChannelId AnyChannel(Events& events) const { return ChannelId(1 + events.Byte() % last_channel_); }
  void AnswerQuery(Events& events, MonotonicTime now) {
    const std::string address = events.Id("b");
    if (events.Byte() % 4 == 0) {
      return Take(consumer_->OnQueryAnswer(address, absl::UnavailableError("down"), now));
    }
    RegisteredEngine engine;
    engine.engine_id = events.Id("e");
    if (events.Byte() % 4 != 0) engine.kv_lease_duration = 30;
    if (events.Byte() % 2 != 0) engine.incarnation = events.Byte();
    if (events.Byte() % 2 != 0) engine.tp_size = 1 + events.Byte() % 3;
    for (int64_t tp = events.Byte() % 3; tp >= 0; --tp) engine.addresses[tp][events.Byte() % 2] = "tcp://h:1";
    Take(consumer_->OnQueryAnswer(address, std::map<int64_t, RegisteredEngine>{{0, engine}}, now));
  }
  void Take(const ConsumerActions& actions) {
    for (const ChannelMessage& send : actions.sends) {
      last_channel_ = send.channel.value();
      TENURE_CHECK(DecodePull(send.bytes).ok());
    }
    for (const std::string& id : actions.received) TENURE_CHECK(running_.erase(id) == 1);
    for (const FailedPull& pull : actions.failed) TENURE_CHECK(running_.erase(pull.request_id) == 1);
    for (const FailingPull& pull : actions.failing) TENURE_CHECK(running_.contains(pull.request_id));
  }

  static ConsumerOptions Options() {
    ConsumerOptions options;
    options.worker = TinyPull(TinyLayout(kRank, 1 << 24, kBlocks), "d", 30);
    return options;
  }
  absl::StatusOr<Consumer> consumer_ = Consumer::Create(Options());
  std::set<std::string> running_;
  uint64_t last_channel_ = 0;
};

}  // namespace
}  // namespace tenure::pd

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tenure::pd::Events events({reinterpret_cast<const char*>(data), size});
  tenure::pd::PrefillSide prefill;
  tenure::pd::DecodeSide decode;
  tenure::MonotonicTime now = tenure::MonotonicTime::FromNanoseconds(1);
  while (!events.empty()) {
    switch (events.Byte() % 3) {
      case 0:
        prefill.Event(events, now);
        break;
      case 1:
        decode.Event(events, now);
        break;
      default:
        now = now + absl::Seconds(events.Byte() / 4);
        prefill.Scan(now);
        decode.Tick(now);
    }
  }
  prefill.ExpectEmptyInTheEnd(now);
  decode.ExpectEmptyInTheEnd();
  return 0;
}
