#include "tenure/handoff/decode_links.h"

#include <utility>

#include "tenure/base/status.h"

namespace tenure::handoff {

namespace {

// Beyond them a worker says more than anyone can read; what is dropped fails at its deadline.
constexpr size_t kAnswersWaitingMax = 100'000;

}  // namespace

DecodeLinks::DecodeLinks(const Clock& clock) : loop_(clock, kAnswersWaitingMax) {}

absl::StatusOr<std::unique_ptr<DecodeLinks>> DecodeLinks::Create(const DecodeLinksOptions& options,
                                                                 const Clock& clock) {
  if (options.query_threads < 1) return InvalidArgument("query_threads is 0; use at least 1");
  std::unique_ptr<DecodeLinks> links(new DecodeLinks(clock));
  DecodeLinks* raw = links.get();
  Channels::Events events;
  events.on_answer = [raw](pd::ChannelId channel, std::string answer) {
    raw->loop_.TryPost([raw, channel, answer = std::move(answer)] { raw->events_.on_answer(channel, answer); });
  };
  events.on_not_sent = [raw](pd::ChannelId channel, const absl::Status& why) {
    raw->Post([raw, channel, text = std::string(Message(why))] { raw->events_.on_not_sent(channel, text); });
  };
  events.on_failed = [raw](pd::ChannelId channel, const absl::Status& why) {
    raw->Post([raw, channel, text = std::string(Message(why))] { raw->events_.on_channel_failed(channel, text); });
  };
  TENURE_ASSIGN_OR_RETURN(links->channels_, Channels::Start(options.channels, clock, std::move(events)));
  links->queries_ = std::make_unique<BootstrapQueries>(
      options.bootstrap, options.query_threads,
      [raw](const std::string& url, absl::StatusOr<RegisteredEngines> engines) {
        raw->Post([raw, url, engines = std::move(engines)] { raw->events_.on_query_answer(url, engines); });
      });
  return links;
}

DecodeLinks::~DecodeLinks() { loop_.Stop(); }

void DecodeLinks::Start(Events events) {
  events_ = std::move(events);
  loop_.Start(events_.on_time);
}

void DecodeLinks::CarryOut(const std::vector<std::string>& queries, std::vector<pd::ChannelMessage> sends,
                           const std::vector<pd::ChannelId>& closes) {
  for (const std::string& url : queries) queries_->Ask(url);
  for (pd::ChannelMessage& message : sends) channels_->Send(std::move(message));
  for (const pd::ChannelId channel : closes) channels_->Close(channel);
}

}  // namespace tenure::handoff
