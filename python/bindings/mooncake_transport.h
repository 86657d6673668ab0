// Mooncake's TransferEngine as a transport, through its Python API: what stock peers speak (pd_protocol spec §10).
//
// A write blocks and cannot be interrupted, so each of some threads runs one at a time; the engine gives the
// interpreter's lock up meanwhile. A write that failed may have left bytes on the way: its result is never settled.
#pragma once

#include <nanobind/nanobind.h>

#include <deque>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tenure/base/clock.h"
#include "tenure/base/mutex.h"
#include "tenure/transfer/range_registry.h"
#include "tenure/transfer/transport.h"

namespace tenure::python {

class MooncakeTransport final : public transfer::Transport {
 public:
  // `engine`: an initialized mooncake.engine.TransferEngine; `session`: "host:port" by which peers open it.
  // `on_thread_start`: called in each thread, or None. With the interpreter's lock held.
  MooncakeTransport(nanobind::object engine, std::string session, int threads, nanobind::object on_thread_start,
                    const Clock& clock);
  ~MooncakeTransport() override;
  // Waits for the writes that run and ends the threads; without or with the interpreter's lock. What is posted later is
  // answered by the destructor. Idempotent.
  void Stop();

  static constexpr std::string_view kKind = "mooncake";
  std::string_view kind() const override { return kKind; }
  absl::Status Register(const std::vector<transfer::MemoryRange>& ranges) override;
  pd::TransportAddress Address() const override;
  absl::Status CanReach(const pd::TransportAddress& peer) override;
  void Post(const pd::TransportAddress& peer, std::vector<pd::WritePiece> pieces, MonotonicTime deadline,
            transfer::WriteDone done) override;

 private:
  struct Job {
    std::string session;
    std::vector<pd::WritePiece> pieces;
    MonotonicTime deadline;
    transfer::WriteDone done;
    absl::Status refusal;  // Not OK: nothing is written.
  };

  void Serve();
  transfer::WriteResult Write(const Job& job);

  nanobind::object engine_;
  nanobind::object on_thread_start_;
  const std::string session_;
  const Clock& clock_;
  transfer::RangeRegistry
      ranges_;  // What this process may write from; where a stock peer lets it write is its own word.
  Mutex mutex_;
  CondVar work_;
  std::deque<Job> jobs_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace tenure::python
