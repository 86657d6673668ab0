#include "tenure/transfer/transport_rig_testing.h"

#include <utility>

#include "tenure/base/check.h"
#include "tenure/transfer/peer_process_testing.h"

// What the address sanitizer asks for when it looks for leaks. A thread of UCX lives until the process ends, and the
// sanitizer of GCC 12 reads wild memory as that thread's variables; a worker of UCX lives on too (ucx_retired.h), with
// memory that it knows by other means than pointers.
// NOLINTBEGIN(bugprone-reserved-identifier)
extern "C" const char* __lsan_default_options() { return "use_tls=0:print_suppressions=0"; }
extern "C" const char* __lsan_default_suppressions() { return "leak:libucs.so\nleak:libucp.so\nleak:libuct.so\n"; }
// NOLINTEND(bugprone-reserved-identifier)

namespace tenure::transfer {

void PostedWrite::Slot::Set(WriteResult value) {
  const MutexLock lock(mutex);
  const bool answered_before = result.has_value();
  TENURE_CHECK(!answered_before);
  result = std::move(value);
  changed.SignalAll();
}

bool PostedWrite::done() const {
  const MutexLock lock(slot_->mutex);
  return slot_->result.has_value();
}

WriteResult PostedWrite::Wait() const {
  const MonotonicClock clock;
  const MonotonicTime end = clock.Now() + absl::Minutes(1);
  const MutexLock lock(slot_->mutex);
  while (!slot_->result) {
    TENURE_CHECK(clock.Now() < end);
    slot_->changed.WaitFor(slot_->mutex, absl::Seconds(1));
  }
  // A status of its own: the count of a shared one is kept in a library that the thread sanitizer does not see into.
  const absl::Status& status = slot_->result->status;
  return {absl::Status(status.code(), status.message()), slot_->result->settled};
}

WriteResult WriteAndWait(Transport& transport, const pd::TransportAddress& peer, std::vector<pd::WritePiece> pieces,
                         MonotonicTime deadline) {
  const PostedWrite write;
  transport.Post(peer, std::move(pieces), deadline, write.Done());
  return write.Wait();
}

TestMemory::TestMemory(size_t size, uint64_t seed) : bytes_(size) {
  Random random(seed);
  for (unsigned char& byte : bytes_) byte = static_cast<unsigned char>(random() & 0xFF);
}

__attribute__((no_sanitize("thread"))) std::vector<unsigned char> TestMemory::Arrived() const {
  std::vector<unsigned char> arrived(bytes_.size());
  for (size_t i = 0; i < bytes_.size(); ++i) arrived[i] = *const_cast<const volatile unsigned char*>(&bytes_[i]);
  return arrived;
}

uint64_t TestMemory::ChecksumOf(size_t offset, size_t size) const { return Checksum(bytes_.data() + offset, size); }

}  // namespace tenure::transfer
