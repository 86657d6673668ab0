// usage: transfer_peer KIND BYTES   (peer_process_testing.h starts it)
// Registers memory with a transport, prints its address and answers commands, one a line: `sum OFFSET SIZE`, `unmap`,
// `write ADDRESS TO TIMES`, `renew`, `exec`. Ends with its standard input.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>

#include "tenure/base/check.h"
#include "tenure/transfer/peer_process_testing.h"
#include "tenure/transfer/transport_rig_testing.h"
#include "tenure/transfer/transports.h"

namespace tenure::transfer {
namespace {

void Say(const std::string& line) { std::cout << line << std::endl; }

class Peer {
 public:
  Peer(std::string kind, uint64_t bytes) : kind_(std::move(kind)), bytes_(bytes) {
    memory_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    TENURE_CHECK(memory_ != MAP_FAILED);
    StartTransport();
  }

  void Answer(const std::string& line) {
    std::istringstream words(line);
    std::string command;
    words >> command;
    if (command == "sum") {
      uint64_t offset = 0;
      uint64_t size = 0;
      words >> offset >> size;
      char sum[17];
      std::snprintf(sum, sizeof(sum), "%lx", static_cast<unsigned long>(Checksum(Memory() + offset, size)));
      Say(sum);
    } else if (command == "unmap") {
      TENURE_CHECK(munmap(memory_, bytes_) == 0);
      Say("done");
    } else if (command == "write") {
      std::string address;
      uint64_t to = 0;
      int times = 0;
      words >> address >> to >> times;
      const MonotonicTime deadline = clock_.Now() + absl::Minutes(1);
      const pd::TransportAddress target = AddressOfWord(address);
      const std::vector<pd::WritePiece> pieces = {{reinterpret_cast<uint64_t>(memory_), to, bytes_}};
      TENURE_CHECK(WriteAndWait(*transport_, target, pieces, deadline).status.ok());
      for (int i = 0; i < times; ++i) transport_->Post(target, pieces, deadline, [](const WriteResult&) {});
      Say("done");
    } else if (command == "renew") {
      StartTransport();
    }
  }

 private:
  const char* Memory() const { return static_cast<const char*>(memory_); }

  void StartTransport() {
    transport_.reset();
    auto transport = CreateTransport(kind_, "127.0.0.1", clock_);
    if (!transport.ok()) std::cerr << transport.status() << std::endl;
    TENURE_CHECK(transport.ok());
    transport_ = *std::move(transport);
    const absl::Status status = transport_->Register({{reinterpret_cast<uint64_t>(memory_), bytes_}});
    if (!status.ok()) std::cerr << status << std::endl;
    TENURE_CHECK(status.ok());
    Say(AddressWord(transport_->Address()));
  }

  const std::string kind_;
  const uint64_t bytes_;
  const MonotonicClock clock_;
  void* memory_ = nullptr;
  std::unique_ptr<Transport> transport_;
};

}  // namespace
}  // namespace tenure::transfer

int main(int argc, char** argv) {
  TENURE_CHECK(argc == 3);
  tenure::transfer::Peer peer(argv[1], std::stoull(argv[2]));
  for (std::string line; std::getline(std::cin, line);) {
    if (line == "exec") execv("/proc/self/exe", argv);
    peer.Answer(line);
  }
  return 0;
}
