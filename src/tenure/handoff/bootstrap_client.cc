#include "tenure/handoff/bootstrap_client.h"

#include <algorithm>
#include <utility>

#include "tenure/base/clock.h"
#include "tenure/base/status.h"

namespace tenure::handoff {

absl::StatusOr<std::unique_ptr<BootstrapClient>> BootstrapClient::Create(std::string_view url,
                                                                         const BootstrapClientOptions& options,
                                                                         Pause pause) {
  TENURE_ASSIGN_OR_RETURN(const http::HttpAddress address, http::ParseHttpUrl("the bootstrap server's address", url));
  for (const auto& [name, attempts] :
       {std::pair("register_attempts", options.register_attempts), {"query_attempts", options.query_attempts}}) {
    if (attempts < 1) return InvalidArgument("{} is {}; use at least 1", name, attempts);
  }
  return std::unique_ptr<BootstrapClient>(new BootstrapClient(url, address, options, std::move(pause)));
}

BootstrapClient::BootstrapClient(std::string_view url, const http::HttpAddress& address,
                                 const BootstrapClientOptions& options, Pause pause)
    : url_(url),
      options_(options),
      http_(address, {.timeout = options.timeout,
                      .body_bytes_max = kEnginesBytesMax,
                      .authorization = options.token.empty() ? "" : "Bearer " + options.token}),
      pause_(pause ? std::move(pause) : [this](absl::Duration time) { WaitOrCancel(time); }) {}

absl::Status BootstrapClient::Register(const pd::WorkerRegistration& worker) {
  const std::string body = EncodeRegistration(worker);
  return AskWithRetries(options_.register_attempts, options_.register_pause, options_.register_pause_max,
                        [&] { return http_.Post("/register", body); })
      .status();
}

absl::StatusOr<RegisteredEngines> BootstrapClient::Query() {
  TENURE_ASSIGN_OR_RETURN(const std::string body,
                          AskWithRetries(options_.query_attempts, options_.query_pause, options_.query_pause,
                                         [&] { return http_.Get("/query"); }));
  auto engines = DecodeEngines(body);
  if (!engines.ok()) return InvalidArgument("bootstrap server {}: {}", url_, Message(engines.status()));
  return engines;
}

template <typename Ask>
absl::StatusOr<std::string> BootstrapClient::AskWithRetries(int attempts, absl::Duration pause,
                                                            absl::Duration pause_max, Ask ask) {
  absl::Status failure;
  for (int attempt = 0; attempt < attempts; ++attempt) {
    if (attempt > 0) {
      pause_(pause);
      pause = std::min(2 * pause, pause_max);
    }
    if (cancelled()) return Unavailable("bootstrap server {}: cancelled", url_);
    absl::StatusOr<http::HttpResponse> answer = ask();
    if (answer.ok() && answer->status == 200) return std::move(answer->body);
    if (answer.ok()) {
      return FailedPrecondition("bootstrap server {} refuses with status {}: {}", url_, answer->status,
                                DecodeDetail(answer->body));
    }
    failure = answer.status();
    if (!absl::IsUnavailable(failure)) break;
  }
  return absl::Status(failure.code(), fmt::format("bootstrap server {}: {}", url_, Message(failure)));
}

void BootstrapClient::Cancel() {
  {
    MutexLock lock(mutex_);
    cancelled_ = true;
  }
  wake_.SignalAll();
  http_.Cancel();
}

bool BootstrapClient::cancelled() {
  MutexLock lock(mutex_);
  return cancelled_;
}

void BootstrapClient::WaitOrCancel(absl::Duration time) {
  const MonotonicClock clock;
  const MonotonicTime end = clock.Now() + time;
  MutexLock lock(mutex_);
  while (!cancelled_) {
    const absl::Duration left = end - clock.Now();
    if (left <= absl::ZeroDuration()) return;
    wake_.WaitFor(mutex_, left);
  }
}

}  // namespace tenure::handoff
