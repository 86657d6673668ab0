#include "tenure/transfer/ucx_transport.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <list>
#include <thread>
#include <utility>

#include "tenure/base/look_again.h"
#include "tenure/base/mutex.h"
#include "tenure/base/status.h"
#include "tenure/transfer/command_queue.h"
#include "tenure/transfer/post_intake.h"
#include "tenure/transfer/ucx_endpoint.h"
#include "tenure/transfer/ucx_receiver.h"
#include "tenure/transfer/ucx_retired.h"
#include "tenure/transfer/ucx_worker.h"

namespace tenure::transfer {
namespace {

constexpr const char* kAllButSharedMemory = "^sm";

// Calls of UCX's progress that moved something, before commands and deadlines have their turn.
constexpr int kProgressPerTurn = 64;

// A sleep ends at the latest then, whatever the clock: a test's clock may move without a sign.
constexpr absl::Duration kSleepMax = absl::Milliseconds(100);
constexpr absl::Duration kIdleSleepMax = absl::Seconds(1);

// How long the end waits for connections to open, and then for them to close.
constexpr absl::Duration kConnectWaitMax = absl::Seconds(1);
constexpr absl::Duration kCloseWaitMax = absl::Seconds(1);

class UcxThread final : public UcxTransport {
 public:
  explicit UcxThread(const Clock& clock) : clock_(clock) {}

  ~UcxThread() override {
    if (thread_.joinable()) {
      commands_.Push([this] { stopping_ = true; });
      thread_.join();
    }
  }

  // Makes the worker in its thread.
  absl::Status Start(const UcxTransportOptions& options) {
    if (!commands_.valid()) return Unavailable("this process has no file descriptor left for the ucx transport");
    const std::string transports = options.transports.empty() ? kAllButSharedMemory : options.transports;
    Outcome started;
    thread_ = std::thread([&, transports] {
      absl::Status status = Listen(transports, options.host);
      const bool runs = status.ok();
      started.Set(std::move(status));  // `started` and `options` are gone after this.
      if (runs) Run();
    });
    return started.Wait();
  }

  absl::Status Register(const std::vector<MemoryRange>& ranges) override {
    Outcome registered;
    commands_.Push([&] {
      absl::Status status = worker_->Register(ranges);
      Publish();
      registered.Set(std::move(status));
    });
    return registered.Wait();
  }

  pd::TransportAddress Address() const override {
    const MutexLock lock(mutex_);
    return address_;
  }

  absl::Status CanReach(const pd::TransportAddress& peer) override {
    TENURE_ASSIGN_OR_RETURN(const std::string address, AddressFor(peer));
    return DecodeUcxAddress(address).status();
  }

  void Post(const pd::TransportAddress& peer, std::vector<pd::WritePiece> pieces, MonotonicTime deadline,
            WriteDone done) override {
    intake_.Post(std::move(done), [this, peer, pieces = std::move(pieces), deadline](const WriteDone& counted) {
      return StartPost(peer, pieces, deadline, counted);
    });
  }

 private:
  // What the thread of a call waits for.
  class Outcome {
   public:
    void Set(absl::Status status) {
      const MutexLock lock(mutex_);
      status_ = std::move(status);
      set_ = true;
      changed_.SignalAll();
    }
    absl::Status Wait() {
      const MutexLock lock(mutex_);
      while (!set_) changed_.Wait(mutex_);
      return std::move(status_);
    }

   private:
    Mutex mutex_;
    CondVar changed_;
    bool set_ ABSL_GUARDED_BY(mutex_) = false;
    absl::Status status_ ABSL_GUARDED_BY(mutex_);
  };

  // The rest runs in the thread of the worker.

  absl::Status Listen(const std::string& transports, const std::string& host) {
    TENURE_ASSIGN_OR_RETURN(worker_, UcxWorker::Create(transports));
    TENURE_ASSIGN_OR_RETURN(receiver_, UcxReceiver::Create(*worker_, host));
    TENURE_RETURN_IF_ERROR(worker_->TakeAnswers([this](const UcxAnswer& answer) { OnAnswer(answer); }));
    Publish();
    return absl::OkStatus();
  }

  void Publish() {
    UcxAddress own = receiver_->address();
    own.device_memory = worker_->has_device_memory();
    const MutexLock lock(mutex_);
    address_ = {std::string(kKind), EncodeUcxAddress(own), worker_->keys()};
  }

  // Of a post that is over, there may be no more.
  void OnAnswer(const UcxAnswer& answer) {
    const auto post = posts_by_id_.find(answer.post);
    if (post != posts_by_id_.end()) return post->second->OnAnswer(answer.verdict);
    for (const auto& [address, endpoint] : endpoints_) {
      if (endpoint->id() == answer.post) endpoint->OnAnswer(answer.verdict);
    }
  }

  void Run() {
    const MonotonicClock real;  // A test's clock may stand still.
    LookAgain look(real);
    while (true) {
      commands_.RunAll();
      if (stopping_) break;
      bool moved = false;
      for (int i = 0; i < kProgressPerTurn && worker_->Progress(); ++i) moved = true;
      const bool more = SweepPosts(clock_.Now());
      SweepEndpoints();
      if (moved || more) {
        look.Begin();
      } else if (!look.Worthwhile() && worker_->Arm()) {
        Sleep();
        look.Begin();
      }
    }
    Finish();
  }

  absl::Status StartPost(const pd::TransportAddress& peer, const std::vector<pd::WritePiece>& pieces,
                         MonotonicTime deadline, const WriteDone& done) {
    TENURE_ASSIGN_OR_RETURN(const std::string address, AddressFor(peer));
    if (stopping_) return Unavailable("the transport ends");
    if (clock_.Now() >= deadline) return absl::DeadlineExceededError("the write was not begun by its deadline");
    if (pieces.empty()) {
      done({absl::OkStatus(), true});
      return absl::OkStatus();
    }
    TENURE_ASSIGN_OR_RETURN(UcxEndpoint * endpoint, Connect(address));
    TENURE_ASSIGN_OR_RETURN(std::vector<PlacedWrite> writes, endpoint->Place(peer.memory, pieces));
    std::vector<ucp_rkey_h> keys;
    if (endpoint->writes()) {
      TENURE_ASSIGN_OR_RETURN(keys, KeysOf(*endpoint, peer, writes));
    }
    const uint64_t id = next_id_++;
    posts_by_id_[id] = &posts_.emplace_back(*endpoint, id, std::move(writes), std::move(keys), deadline, done);
    return absl::OkStatus();
  }

  static absl::StatusOr<std::vector<ucp_rkey_h>> KeysOf(UcxEndpoint& endpoint, const pd::TransportAddress& peer,
                                                        const std::vector<PlacedWrite>& writes) {
    std::vector<ucp_rkey_h> keys(peer.memory.size());
    for (const PlacedWrite& write : writes) {
      ucp_rkey_h& key = keys[write.to_range];
      if (key != nullptr) continue;
      TENURE_ASSIGN_OR_RETURN(key, endpoint.Key(peer.memory[write.to_range].key));
    }
    return keys;
  }

  absl::StatusOr<UcxEndpoint*> Connect(const std::string& address) {
    auto known = endpoints_.find(address);
    if (known != endpoints_.end() && !known->second->status().ok()) {
      Close(known);
      known = endpoints_.end();
    }
    if (known == endpoints_.end()) {
      MakeRoom();
      TENURE_ASSIGN_OR_RETURN(const UcxAddress target, DecodeUcxAddress(address));
      TENURE_ASSIGN_OR_RETURN(std::unique_ptr<UcxEndpoint> endpoint,
                              UcxEndpoint::Create(*worker_, target, receiver_->address().rdma, next_id_++));
      known = endpoints_.emplace(address, std::move(endpoint)).first;
    }
    known->second->last_used = clock_.Now();
    return known->second.get();
  }

  // Closes the longest unused connection without posts when there are too many.
  void MakeRoom() {
    if (endpoints_.size() < kEndpointsMax) return;
    auto oldest = endpoints_.end();
    for (auto it = endpoints_.begin(); it != endpoints_.end(); ++it) {
      const bool older = oldest == endpoints_.end() || it->second->last_used < oldest->second->last_used;
      if (it->second->posts == 0 && older) oldest = it;
    }
    if (oldest != endpoints_.end()) Close(oldest);
  }

  void Close(std::map<std::string, std::unique_ptr<UcxEndpoint>>::iterator endpoint) {
    endpoint->second->StartClose();
    closing_.push_back(std::move(endpoint->second));
    endpoints_.erase(endpoint);
  }

  // Moves every post on; whether one has more to give to UCX at once.
  bool SweepPosts(MonotonicTime now) {
    bool more = false;
    for (auto it = posts_.begin(); it != posts_.end();) {
      UcxPost& post = *it;
      if (!post.answered()) more = Step(post, now) || more;
      const auto swept = it++;
      if (!post.answered() || !post.idle()) continue;
      posts_by_id_.erase(post.id());
      posts_.erase(swept);
    }
    return more;
  }

  static bool Step(UcxPost& post, MonotonicTime now) {
    UcxEndpoint& endpoint = post.endpoint();
    // A write that UCX ends with an error leaves the connection in no state to go on with.
    if (!post.status().ok()) endpoint.Fail(post.status());
    if (!endpoint.status().ok()) {
      post.Answer(endpoint.status());
      return false;
    }
    if (post.complete()) {
      post.Answer(absl::OkStatus());
      return false;
    }
    if (now >= post.deadline()) {
      const bool alone = endpoint.unanswered == 1;
      // Posts in time keep the connection; the last one that runs into its deadline takes it down.
      if (alone && (post.issued() || !endpoint.connected())) {
        endpoint.Fail(absl::DeadlineExceededError("the peer took no part in time"));
      }
      post.Answer(absl::DeadlineExceededError("the write was not done by its deadline"));
      return false;
    }
    return post.Pump();
  }

  void SweepEndpoints() {
    receiver_->Sweep();
    for (auto it = endpoints_.begin(); it != endpoints_.end();) {
      const auto endpoint = it++;
      if (!endpoint->second->status().ok()) Close(endpoint);
    }
    for (auto it = closing_.begin(); it != closing_.end();) {
      it = (*it)->closed() && (*it)->posts == 0 ? closing_.erase(it) : std::next(it);
    }
  }

  void Sleep() {
    absl::Duration longest = kIdleSleepMax;
    const MonotonicTime now = clock_.Now();
    if (!posts_.empty() || !closing_.empty()) longest = kSleepMax;
    for (const UcxPost& post : posts_) {
      if (!post.answered()) longest = std::min(longest, post.deadline() - now);
    }
    // Rounded up, so that a wait for a deadline does not end just before it, again and again.
    const int64_t milliseconds = longest <= absl::ZeroDuration() ? 0 : absl::ToInt64Milliseconds(longest) + 1;
    std::array<pollfd, 2> events = {pollfd{commands_.fd(), POLLIN, 0}, pollfd{worker_->event_descriptor(), POLLIN, 0}};
    poll(events.data(), events.size(), static_cast<int>(milliseconds));
    if ((events[0].revents & POLLIN) != 0) commands_.Clear();
  }

  // Answers what is open, and lets UCX go of it.
  void Finish() {
    for (UcxPost& post : posts_) {
      if (!post.answered()) post.Answer(Unavailable("the transport ends"));
    }
    const MonotonicClock real;  // A test's clock may stand still.
    WaitForConnections(real);
    while (!endpoints_.empty()) Close(endpoints_.begin());
    receiver_->Stop();
    const MonotonicTime end = real.Now() + kCloseWaitMax;
    while (!closing_.empty() && real.Now() < end) {
      worker_->Progress();
      SweepPosts(real.Now());
      SweepEndpoints();
    }
    while (commands_.RunAll()) {  // Posts from within `done`, which are refused.
    }
    worker_->ReleaseMemory();
    (void)worker_->TakeAnswers([](const UcxAnswer&) {});
    if (closing_.empty()) return RetireUcx(std::move(worker_), std::move(receiver_));
    // UCX refers to posts that it has not let go of, so nobody may move it on.
    for (const std::unique_ptr<UcxEndpoint>& endpoint : closing_) endpoint->Release();
    (void)worker_.release();
    (void)receiver_.release();
    posts_by_id_.clear();
    posts_.clear();
    closing_.clear();
  }

  // UCX 1.13 may abort the process of a peer that finds nobody any more behind a connection that it is accepting.
  void WaitForConnections(const MonotonicClock& real) {
    const MonotonicTime end = real.Now() + kConnectWaitMax;
    const auto opening = [](const auto& known) { return !known.second->connected(); };
    while (std::any_of(endpoints_.begin(), endpoints_.end(), opening) && real.Now() < end) {
      worker_->Progress();
      SweepEndpoints();
    }
  }

  const Clock& clock_;
  CommandQueue commands_;
  PostIntake intake_{commands_};
  std::thread thread_;

  mutable Mutex mutex_;
  pd::TransportAddress address_ ABSL_GUARDED_BY(mutex_);

  // Of the worker's thread.
  bool stopping_ = false;
  std::unique_ptr<UcxReceiver> receiver_;
  std::unique_ptr<UcxWorker> worker_;
  std::map<std::string, std::unique_ptr<UcxEndpoint>> endpoints_;  // By the peer's address.
  std::vector<std::unique_ptr<UcxEndpoint>> closing_;
  std::list<UcxPost> posts_;
  std::map<uint64_t, UcxPost*> posts_by_id_;
  uint64_t next_id_ = 1;  // Of posts and connections.
};

}  // namespace

absl::StatusOr<std::unique_ptr<UcxTransport>> UcxTransport::Create(const UcxTransportOptions& options,
                                                                   const Clock& clock) {
  auto transport = std::make_unique<UcxThread>(clock);
  TENURE_RETURN_IF_ERROR(transport->Start(options));
  return transport;
}

}  // namespace tenure::transfer
