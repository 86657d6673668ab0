// What becomes of a post before a transport's thread carries it out: the limit of open ones, and answers that need no
// peer.
#pragma once

#include <atomic>
#include <utility>

#include "tenure/base/status.h"
#include "tenure/transfer/command_queue.h"
#include "tenure/transfer/transport.h"

namespace tenure::transfer {

class PostIntake {
 public:
  // Outlives what goes through it.
  explicit PostIntake(CommandQueue& commands) : commands_(commands) {}

  // From any thread: the owner calls start(done), once, with a `done` that takes the post off the open ones; a status
  // that is not OK, which start may return in place of calling it, is the result. Beyond Transport::kOpenPostsMax the
  // post is refused instead, from the owner's thread too.
  template <typename Start>
  void Post(WriteDone done, Start start) {
    const size_t open = open_.fetch_add(1);
    WriteDone counted = [this, done = std::move(done)](WriteResult result) {
      open_.fetch_sub(1);
      done(std::move(result));
    };
    if (open >= Transport::kOpenPostsMax) {
      return commands_.Push([counted = std::move(counted), open] {
        counted({ResourceExhausted("{} posts are open; post again when some are done", open), true});
      });
    }
    commands_.Push([counted = std::move(counted), start = std::move(start)] {
      const absl::Status status = start(counted);
      if (!status.ok()) counted({status, true});
    });
  }

 private:
  CommandQueue& commands_;
  std::atomic<size_t> open_ = 0;
};

}  // namespace tenure::transfer
