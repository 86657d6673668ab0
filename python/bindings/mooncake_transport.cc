#include "bindings/mooncake_transport.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings/lock_guard.h"
#include "tenure/base/status.h"

namespace nb = nanobind;

namespace tenure::python {
namespace {

// What Python raised, as a status of one line.
absl::Status StatusOf(const nb::python_error& error, std::string_view what) {
  std::string text = nb::cast<std::string>(nb::str(error.value()));
  return Unavailable("Mooncake's engine: {} raised {}", what, text.substr(0, text.find('\n')));
}

}  // namespace

MooncakeTransport::MooncakeTransport(nb::object engine, std::string session, int threads, nb::object on_thread_start,
                                     const Clock& clock)
    : engine_(std::move(engine)),
      on_thread_start_(std::move(on_thread_start)),
      session_(std::move(session)),
      clock_(clock) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Serve(); });
}

void MooncakeTransport::Stop() {
  const LockReleased unlocked;  // The writes that run need the lock to end.
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  work_.SignalAll();
  for (std::thread& thread : std::exchange(threads_, {})) thread.join();
}

MooncakeTransport::~MooncakeTransport() {
  Stop();
  for (Job& job : jobs_) job.done({Unavailable("the transport ends; nothing was written"), true});
  const LockHeld locked;
  engine_.reset();
  on_thread_start_.reset();
}

absl::Status MooncakeTransport::Register(const std::vector<transfer::MemoryRange>& ranges) {
  TENURE_RETURN_IF_ERROR(ranges_.Add(ranges));
  const LockHeld locked;
  try {
    std::vector<uint64_t> addresses;
    std::vector<uint64_t> sizes;
    for (const transfer::MemoryRange& range : ranges) {
      addresses.push_back(range.address);
      sizes.push_back(range.size);
    }
    const int code = nb::cast<int>(engine_.attr("batch_register_memory")(addresses, sizes));
    if (code == 0) return absl::OkStatus();
    return Unavailable("Mooncake's engine cannot register {} ranges of memory: it returned {}; see its log",
                       ranges.size(), code);
  } catch (nb::python_error& error) {
    return StatusOf(error, "batch_register_memory");
  }
}

pd::TransportAddress MooncakeTransport::Address() const { return {std::string(kKind), session_, {}}; }

absl::Status MooncakeTransport::CanReach(const pd::TransportAddress& peer) {
  if (peer.kind == kKind && !peer.address.empty()) return absl::OkStatus();
  return FailedPrecondition("the peer's transport is \"{}\", this one is \"{}\"; set the same on both sides", peer.kind,
                            kKind);
}

void MooncakeTransport::Post(const pd::TransportAddress& peer, std::vector<pd::WritePiece> pieces,
                             MonotonicTime deadline, transfer::WriteDone done) {
  Job job = {peer.address, std::move(pieces), deadline, std::move(done), CanReach(peer)};
  {
    const MutexLock lock(mutex_);
    if (jobs_.size() >= kOpenPostsMax) {
      job.refusal = ResourceExhausted("{} posts are open; post again when some are done", jobs_.size());
    }
    if (!job.refusal.ok()) job.pieces.clear();
    jobs_.push_back(std::move(job));
  }
  work_.SignalOne();
}

void MooncakeTransport::Serve() {
  bool started = false;
  while (true) {
    Job job;
    bool stopping = false;
    {
      const MutexLock lock(mutex_);
      while (jobs_.empty() && !stopping_) work_.Wait(mutex_);
      if (jobs_.empty()) return;
      job = std::move(jobs_.front());
      jobs_.pop_front();
      stopping = stopping_;
    }
    if (!job.refusal.ok()) {
      job.done({job.refusal, true});
    } else if (stopping) {
      job.done({Unavailable("the transport ends; nothing was written"), true});
    } else if (clock_.Now() >= job.deadline) {
      job.done({absl::DeadlineExceededError("the write's deadline passed before its turn; nothing was written"), true});
    } else {
      if (!started && !on_thread_start_.is_none()) {
        const LockHeld locked;
        try {
          on_thread_start_();
        } catch (nb::python_error& error) {
          error.discard_as_unraisable("tenure: on_thread_start");
        }
      }
      started = true;
      job.done(Write(job));
    }
  }
}

transfer::WriteResult MooncakeTransport::Write(const Job& job) {
  const auto registered = ranges_.Get();
  for (const pd::WritePiece& piece : job.pieces) {
    if (registered->map.Find(piece.from, piece.size) == transfer::MemoryMap::kNone) {
      return {InvalidArgument("a write of {} bytes from {:#x} is outside of registered memory", piece.size, piece.from),
              true};
    }
  }
  const LockHeld locked;
  try {
    nb::list from;
    nb::list to;
    nb::list sizes;
    for (const pd::WritePiece& piece : job.pieces) {
      from.append(piece.from);
      to.append(piece.to);
      sizes.append(piece.size);
    }
    const int code = nb::cast<int>(engine_.attr("batch_transfer_sync_write")(job.session, from, to, sizes));
    if (code == 0) return {absl::OkStatus(), true};
    return {Unavailable("Mooncake transfer engine returned {} for a write to {}", code, job.session), false};
  } catch (nb::python_error& error) {
    return {StatusOf(error, "batch_transfer_sync_write"), false};
  } catch (const nb::cast_error&) {
    return {Unavailable("Mooncake's engine: batch_transfer_sync_write returned no number"), false};
  }
}

}  // namespace tenure::python
