// Another process with a transport and memory to write into, for tests and benchmarks: the program transfer_peer, which
// lies beside the one that runs.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

#include "tenure/pd/transport_address.h"

namespace tenure::transfer {

// Of bytes in order; what the peer answers for its own memory.
uint64_t Checksum(const void* bytes, size_t size);

// What a peer prints of itself, in one word, and back.
std::string AddressWord(const pd::TransportAddress& address);
pd::TransportAddress AddressOfWord(std::string_view word);

class PeerProcess {
 public:
  // Starts it; `bytes` of zeros are registered when the constructor returns. The process ends with this object, and
  // with the test. CHECKs that it starts.
  PeerProcess(std::string_view kind, uint64_t bytes);
  ~PeerProcess();
  PeerProcess(const PeerProcess&) = delete;
  PeerProcess& operator=(const PeerProcess&) = delete;

  const pd::TransportAddress& address() const { return address_; }
  uint64_t base() const { return address_.memory.at(0).base; }
  pid_t pid() const { return pid_; }

  // Of `size` bytes from base() + offset on.
  uint64_t ChecksumOf(uint64_t offset, uint64_t size);
  // It writes its memory, all of it, to `to` of that transport: once, and when that has arrived it begins to do so as
  // often as `times`. CHECKs the first write.
  void StartWrites(const pd::TransportAddress& target, uint64_t to, int times);
  // Takes the memory away and leaves it registered.
  void Unmap();
  // Ends its transport, and starts another one with the same memory.
  void RenewTransport();
  // The same process begins anew with another memory.
  void Exec();

  void Signal(int number) const;
  // SIGKILL; returns when the process has ended. Not reaped: still a zombie.
  void Kill();
  void Reap();

 private:
  std::string Ask(const std::string& command);
  std::string ReadLine() const;

  pid_t pid_ = -1;
  int to_ = -1;
  int from_ = -1;
  pd::TransportAddress address_;
};

}  // namespace tenure::transfer
