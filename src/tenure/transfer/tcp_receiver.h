// The side of the tcp transport that is written to: it listens, reads the parts of posts into registered memory and
// answers when a post is whole (tcp_inbound.h has the rules of what is read).
//
// Anybody may connect: connections that have not greeted, or were refused, are few and short-lived, and make room for
// the next one; none is waited for, and each has its turn of bounded size.
//
// Of the thread of its poller.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "tenure/base/clock.h"
#include "tenure/transfer/range_registry.h"
#include "tenure/transfer/tcp_address.h"
#include "tenure/transfer/tcp_inbound.h"
#include "tenure/transfer/tcp_socket.h"
#include "tenure/transfer/tcp_transport.h"

namespace tenure::transfer {

class TcpReceiver final : private TcpHandler {
 public:
  // Listens at any free port of the host. The others outlive it. InvalidArgument for a host that is none of this
  // machine, Unavailable when the system refuses.
  static absl::StatusOr<std::unique_ptr<TcpReceiver>> Create(const TcpPoller& poller, const RangeRegistry& ranges,
                                                             const TcpTransportOptions& options, const Clock& clock);
  ~TcpReceiver() override;
  TcpReceiver(const TcpReceiver&) = delete;
  TcpReceiver& operator=(const TcpReceiver&) = delete;

  const TcpAddress& address() const { return address_; }
  // After each Wait of the poller: lets go of connections that are over, and of strangers whose time is.
  void Sweep();
  // When the next Sweep is due without an event; Max for never.
  MonotonicTime next_sweep() const;

  // Connections that have not greeted or were refused; beyond them the oldest is closed. And how long one may be that.
  static constexpr size_t kStrangersMax = 256;
  static constexpr absl::Duration kStrangerTime = absl::Seconds(10);
  // Bytes of one connection before others have their turn.
  static constexpr uint64_t kTurnBytes = 1 << 20;
  // Answers that a writer has not read, in bytes; beyond them it is not read from.
  static constexpr size_t kAnswerBytesMax = 64 << 10;

 private:
  class Connection;

  TcpReceiver(const TcpPoller& poller, const RangeRegistry& ranges, size_t writers_max, const Clock& clock);
  absl::Status Listen(const std::string& host);
  void OnEvents(uint32_t events) override;
  void Take(TcpSocket socket);
  // Of a connection: it is a stranger from now on or no longer one, and it is over.
  void SetStranger(Connection& connection, bool stranger);
  void Close(Connection& connection);

  const TcpPoller& poller_;
  const RangeRegistry& ranges_;
  const size_t writers_max_;
  const Clock& clock_;
  TcpAddress address_;
  TcpSocket listener_;
  MonotonicTime deaf_until_ = MonotonicTime::Min();  // Not listening, for want of descriptors; Min: listening.
  std::vector<char> buffer_;                         // Of the turn that runs.
  uint64_t next_id_ = 1;
  std::map<uint64_t, std::unique_ptr<Connection>> connections_;
  std::set<std::pair<MonotonicTime, uint64_t>> strangers_;  // By the end of their time.
  std::vector<std::unique_ptr<Connection>> closed_;         // Until the poller's Wait has returned.
};

}  // namespace tenure::transfer
