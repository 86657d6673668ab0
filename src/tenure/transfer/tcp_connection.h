// A connection to one peer's receiver and the posts that go over it, one after the other in the order of their ids.
//
// Bytes go from registered memory into the socket, many pieces a call. A post that is given up while it is on its way
// is cut off after the bytes that were lined up for the call (kBatchBytes and one part at most), which are sent to keep
// the stream whole.
//
// Of the thread of its poller, which is told of nothing but events; `done` is called from within the methods here.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "tenure/base/clock.h"
#include "tenure/transfer/range_registry.h"
#include "tenure/transfer/tcp_address.h"
#include "tenure/transfer/tcp_message.h"
#include "tenure/transfer/tcp_socket.h"
#include "tenure/transfer/write_list.h"

namespace tenure::transfer {

class TcpConnection;

// What ends at which time, of all connections of a transport: OnDeadline(id) is due then.
using TcpDeadlines = std::map<std::pair<MonotonicTime, uint64_t>, TcpConnection*>;

class TcpConnection final : private TcpHandler {
 public:
  // Begins to connect; the peer has until `connect_deadline`. `id` is no post's. The others outlive it. InvalidArgument
  // for an address that is none, Unavailable when the system refuses.
  static absl::StatusOr<std::unique_ptr<TcpConnection>> Create(const TcpPoller& poller, TcpDeadlines& deadlines,
                                                               const TcpAddress& address, uint64_t id,
                                                               MonotonicTime connect_deadline);
  // Not from within the poller's Wait. Answers what is open as Fail does.
  ~TcpConnection() override;
  TcpConnection(const TcpConnection&) = delete;
  TcpConnection& operator=(const TcpConnection&) = delete;

  // The writes of a post with the peer's memory as its address has it.
  absl::StatusOr<std::vector<PlacedWrite>> Place(const MemoryMap& own, const std::vector<pd::MemoryKey>& memory,
                                                 const std::vector<pd::WritePiece>& pieces);
  // Sends these bytes, at least one, and calls `done` when the peer has said that it has them. Ids ascend.
  void Post(uint64_t id, std::vector<PlacedWrite> writes, MonotonicTime deadline, WriteDone done);
  // The time has come for a post, or for the peer to connect.
  void OnDeadline(uint64_t id);

  // Not OK: the connection is closed and all posts are answered with that.
  const absl::Status& status() const { return error_; }
  void Fail(absl::Status status);
  bool idle() const { return posts_.empty(); }
  MonotonicTime last_used;

  // Bytes that are lined up for one call, give or take a part, and the most parts; and bytes of a part.
  static constexpr uint64_t kBatchBytes = 1 << 20;
  static constexpr size_t kBatchParts = 256;
  static constexpr uint64_t kPartBytes = 256 << 10;

 private:
  struct Sending {
    std::vector<PlacedWrite> writes;
    uint64_t total = 0;  // Their bytes.
    MonotonicTime deadline;
    WriteDone done;
    size_t next = 0;
    uint64_t offset = 0;  // Bytes of the next write that were lined up.

    bool issued() const { return next > 0 || offset > 0; }
  };
  using Posts = std::map<uint64_t, Sending>;
  enum class State { kConnecting, kGreeting, kOpen };

  TcpConnection(const TcpPoller& poller, TcpDeadlines& deadlines, uint64_t id, MonotonicTime connect_deadline);
  void OnEvents(uint32_t events) override;
  void Greet();
  void ReadAnswers();
  void OnAnswer(const TcpAnswer& answer);
  void SendTurn();
  void LineUp();
  void Sent(size_t bytes);
  void OnWriteError(int error);
  void Answer(Posts::iterator post, absl::Status status);
  void Await();
  bool lined_up() const { return next_part_ < parts_.size(); }

  const TcpPoller& poller_;
  TcpDeadlines& deadlines_;
  const uint64_t id_;
  const MonotonicTime connect_deadline_;
  uint64_t receiver_ = 0;
  State state_ = State::kConnecting;
  TcpSocket socket_;
  uint32_t events_ = EPOLLOUT;
  absl::Status error_;

  PeerPlacer placer_;

  Posts posts_;
  uint64_t lining_up_ = 0;  // The first post that was not lined up to its end has at least this id.
  std::vector<TcpPart> heads_;
  std::vector<iovec> parts_;  // What is lined up: a head, its bytes, the next head, ...
  size_t next_part_ = 0;

  std::array<char, sizeof(TcpAnswer)> answer_ = {};  // What has come of the next one.
  size_t answer_have_ = 0;
};

}  // namespace tenure::transfer
