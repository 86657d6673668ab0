// A client's connection to one life of the daemon: the socket, the mapped memory, and questions one after the other.
//
// Calls are made by one thread at a time; the memory may be read and written by any thread as the answers allow. The
// socket is closed and the memory unmapped by the destructor, so whoever copies keeps the session alive: to the daemon
// a closed socket says that no copy of this client runs. After a failed call the session is broken for good, since an
// answer may still be under way.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tenure/base/clock.h"
#include "tenure/base/status.h"
#include "tenure/daemon/file_descriptor.h"
#include "tenure/daemon/receive_buffer.h"
#include "tenure/daemon/shared_memory.h"
#include "tenure/daemon/wire_messages.h"

namespace tenure::daemon {

class ClientSession {
 public:
  // Unavailable when no daemon answers within `patience`, FailedPrecondition when it speaks another version.
  static absl::StatusOr<std::unique_ptr<ClientSession>> Connect(const std::string& socket_path,
                                                                absl::Duration patience);

  // Sends and waits for the answer until `deadline` (MonotonicClock). What the daemon refuses keeps its status;
  // Unavailable when it did not answer or its answer is none.
  template <typename Request, typename Reply>
  absl::Status Call(const Request& request, MonotonicTime deadline, Reply& reply) {
    TENURE_RETURN_IF_ERROR(Begin(deadline));
    AppendFrame(request, ++last_request_, sending_);
    TENURE_RETURN_IF_ERROR(Send(deadline));
    TENURE_RETURN_IF_ERROR(Receive(deadline, Reply::kType));
    return DecodeBody(ReplyBody(), reply) ? absl::OkStatus() : Break("the daemon's answer is malformed");
  }
  // For the messages without an answer.
  template <typename Request>
  absl::Status Tell(const Request& request, MonotonicTime deadline) {
    TENURE_RETURN_IF_ERROR(Begin(deadline));
    AppendFrame(request, ++last_request_, sending_);
    return Send(deadline);
  }

  const HelloReply& hello() const { return hello_; }
  std::span<std::byte> memory() const { return memory_.bytes(); }
  int fd() const { return socket_.get(); }
  // Both from any thread. Break: an answer made no sense, no further call is made. Returns the status that says so.
  absl::Status Break(std::string_view why);
  bool broken() const { return broken_.load(std::memory_order_acquire); }
  // Called each time that something breaks the session, from the thread that met it. Set before others have the
  // session.
  void set_on_broken(std::function<void()> on_broken) { on_broken_ = std::move(on_broken); }
  // Whether the daemon has closed its end, or cut this client off. Any thread.
  bool HungUp() const;

 private:
  explicit ClientSession(FileDescriptor socket) : socket_(std::move(socket)) {}

  absl::Status Greet(MonotonicTime deadline);
  absl::Status TakeMemory(FileDescriptor memory);
  absl::Status Begin(MonotonicTime deadline);
  absl::Status Send(MonotonicTime deadline);
  // Leaves the answer's body in ReplyBody(); an error answer is returned as its status.
  absl::Status Receive(MonotonicTime deadline, uint16_t expected_type);
  absl::Status ReceiveSome(MonotonicTime deadline, FileDescriptor* memory);
  ssize_t ReceiveNow(FileDescriptor* memory);
  absl::Status WaitFor(short events, MonotonicTime deadline);
  absl::Status CheckReply(uint16_t expected_type);
  void MarkBroken();
  std::span<const std::byte> ReplyBody() const { return received_.bytes().subspan(FrameHeader::kBytes); }

  const MonotonicClock clock_;
  FileDescriptor socket_;
  SharedMapping memory_;
  HelloReply hello_;
  std::atomic<bool> broken_{false};
  std::function<void()> on_broken_ = [] {};
  uint32_t last_request_ = 0;
  std::vector<std::byte> sending_;
  ReceiveBuffer received_;
};

}  // namespace tenure::daemon
