// A worker's word to a bootstrap server and a decoder's question (pd_protocol spec §2). Blocking: for a start-up or a
// thread of its own. One thread at a time, but for Cancel.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tenure/base/mutex.h"
#include "tenure/handoff/bootstrap_json.h"
#include "tenure/http/http_client.h"

namespace tenure::handoff {

struct BootstrapClientOptions {
  absl::Duration timeout = absl::Seconds(30);  // For the connection, and then for the whole answer.
  std::string token = {};                      // Of the server; empty: none.
  // Stock workers try three times. A rank of a data-parallel engine may be a minute ahead of rank 0, whose process has
  // the server.
  int register_attempts = 9;
  int query_attempts = 3;
  // Between attempts: the first pause, which doubles up to the most.
  absl::Duration register_pause = absl::Seconds(1);
  absl::Duration register_pause_max = absl::Seconds(10);
  absl::Duration query_pause = absl::Milliseconds(100);  // Always the same.
};

class BootstrapClient {
 public:
  // Waits for the time, or shorter once Cancel was called.
  using Pause = std::function<void(absl::Duration)>;

  // Of "http://HOST:PORT". InvalidArgument for another form, or for fewer than one attempt. `pause`: none is real time;
  // tests give their own.
  static absl::StatusOr<std::unique_ptr<BootstrapClient>> Create(std::string_view url,
                                                                 const BootstrapClientOptions& options,
                                                                 Pause pause = nullptr);

  // Only a server that cannot be reached is tried again, and Unavailable says so in the end; a refusal is told at once
  // with the server's text, as FailedPrecondition.
  absl::Status Register(const pd::WorkerRegistration& worker);
  // The same; InvalidArgument for an answer that is none.
  absl::StatusOr<RegisteredEngines> Query();

  // Any thread: what is under way ends soon, what comes later fails; the look-up of a name runs to its end first.
  void Cancel();

 private:
  BootstrapClient(std::string_view url, const http::HttpAddress& address, const BootstrapClientOptions& options,
                  Pause pause);
  template <typename Ask>
  absl::StatusOr<std::string> AskWithRetries(int attempts, absl::Duration pause, absl::Duration pause_max, Ask ask);
  bool cancelled();
  void WaitOrCancel(absl::Duration time);

  const std::string url_;
  const BootstrapClientOptions options_;
  http::HttpClient http_;
  const Pause pause_;
  Mutex mutex_;
  CondVar wake_;
  bool cancelled_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace tenure::handoff
