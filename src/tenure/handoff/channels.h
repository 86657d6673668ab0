// D's end of the side channel: each message goes over a connection of its own, on which its answers come back
// (pd_protocol spec §3).
//
// A channel is a DEALER that lives from Send to Close or to its failure. It fails at its deadline, when P cannot be
// connected to in `connect_timeout`, and as soon as the connection breaks once the message is out: answers find only
// the connection that asked, so none can come any more (stock waits 540 s). What P still writes is not known then,
// unless the message never left.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tenure/base/clock.h"
#include "tenure/handoff/router.h"
#include "tenure/pd/channel.h"

namespace tenure::handoff {

struct ChannelsOptions {
  size_t channels_max = 4096;  // Open; each holds two descriptors. Further ones fail at once.
  absl::Duration connect_timeout = absl::Seconds(5);
  size_t message_bytes_max = kMessageBytesMax;                 // Either way; a longer answer ends its connection.
  std::optional<std::string> curve_server_key = std::nullopt;  // P's public key; none: in the clear.
};

class Channels {
 public:
  // Called on the thread of the channels; must not block, may call Send and Close.
  struct Events {
    std::function<void(pd::ChannelId channel, std::string answer)> on_answer;
    // Of these two one at most, as the channel's last event; the channel is closed. P never sees the message.
    std::function<void(pd::ChannelId channel, const absl::Status& why)> on_not_sent;
    // P may have seen it, but no answer comes any more. DeadlineExceeded, Unavailable.
    std::function<void(pd::ChannelId channel, const absl::Status& why)> on_failed;
  };

  // `clock` outlives it. InvalidArgument: a key that is none, an option that is not above 0.
  static absl::StatusOr<std::unique_ptr<Channels>> Start(const ChannelsOptions& options, const Clock& clock,
                                                         Events events);
  // Closes all; no event runs or comes after it.
  ~Channels();

  // Any thread, never blocks. A channel id that is open already fails the second one's message: ids are the caller's,
  // and no id comes twice.
  void Send(pd::ChannelMessage message);
  // Any thread. An event that is under way may still come. A message that is not out yet is dropped.
  void Close(pd::ChannelId channel);
  // Any thread.
  size_t num_open() const;

 private:
  class Impl;
  explicit Channels(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace tenure::handoff
