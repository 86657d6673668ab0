// What D's two endpoints have in common: the thread that owns their core, the channels to P's workers and the questions
// to bootstrap servers, with all events on that one thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tenure/base/clock.h"
#include "tenure/handoff/bootstrap_client.h"
#include "tenure/handoff/bootstrap_queries.h"
#include "tenure/handoff/channels.h"
#include "tenure/handoff/event_loop.h"
#include "tenure/pd/channel.h"

namespace tenure::handoff {

struct DecodeLinksOptions {
  ChannelsOptions channels = {};
  BootstrapClientOptions bootstrap = {};
  size_t query_threads = 4;  // Bootstrap servers that are asked at once.
};

class DecodeLinks {
 public:
  // On the loop's thread, in the order of their coming.
  struct Events {
    std::function<void(pd::ChannelId channel, const std::string& answer)> on_answer;
    // As Channels::Events has them.
    std::function<void(pd::ChannelId channel, const std::string& why)> on_not_sent;
    std::function<void(pd::ChannelId channel, const std::string& why)> on_channel_failed;
    std::function<void(const std::string& url, const absl::StatusOr<RegisteredEngines>& engines)> on_query_answer;
    EventLoop::OnTime on_time;
  };

  // `clock` outlives it. Errors: those of Channels::Start; InvalidArgument for no query thread.
  static absl::StatusOr<std::unique_ptr<DecodeLinks>> Create(const DecodeLinksOptions& options, const Clock& clock);
  // No event runs or comes after it.
  ~DecodeLinks();

  // Once. Events come from now on.
  void Start(Events events);

  // Any thread: runs on the loop's thread.
  void Post(EventLoop::Task task) { loop_.Post(std::move(task)); }
  // A core's actions. Any thread.
  void CarryOut(const std::vector<std::string>& queries, std::vector<pd::ChannelMessage> sends,
                const std::vector<pd::ChannelId>& closes);

 private:
  explicit DecodeLinks(const Clock& clock);

  // The others post to it, so it is the last to go; it stops first.
  EventLoop loop_;
  Events events_;
  std::unique_ptr<Channels> channels_;
  std::unique_ptr<BootstrapQueries> queries_;
};

}  // namespace tenure::handoff
