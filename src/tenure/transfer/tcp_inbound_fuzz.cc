// Any bytes as a writer's connection, with heads that often fit among them: nothing outside of registered memory
// changes, answers are bounded by what was sent, and the cuts between reads make no difference.
#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "tenure/base/check.h"
#include "tenure/transfer/tcp_inbound.h"
#include "tenure/transfer/transport.h"

namespace tenure::transfer {
namespace {

constexpr uint64_t kReceiver = 1;
constexpr size_t kMemoryBytes = 256;  // The middle half of it is registered.

uint8_t TakeByte(std::string_view& bytes) {
  if (bytes.empty()) return 0;
  const auto byte = static_cast<uint8_t>(bytes.front());
  bytes.remove_prefix(1);
  return byte;
}

template <typename Head>
void Append(std::string& stream, const Head& head) {
  stream.append(reinterpret_cast<const char*>(&head), sizeof(head));
}

// Greetings, parts and bytes as they are, by turns.
std::string StreamOf(std::string_view bytes, uint64_t base) {
  std::string stream;
  while (!bytes.empty()) {
    const uint8_t what = TakeByte(bytes);
    if (what % 8 == 0) {
      Append(stream, TcpGreeting{.receiver = what / 8u % 16 == 0 ? kReceiver + 1 : kReceiver});
    } else if (what % 8 < 6) {
      const uint64_t to = base + TakeByte(bytes);
      const uint64_t size = TakeByte(bytes) % 64u;
      Append(stream, TcpPart{what / 64u, to, size, TakeByte(bytes) % 128u});
      stream.append(size, static_cast<char>(what));
    } else {
      const size_t size = std::min<size_t>(TakeByte(bytes), bytes.size());
      stream += bytes.substr(0, size);
      bytes.remove_prefix(size);
    }
  }
  return stream;
}

struct Outcome {
  std::string memory;
  std::string answers;
  TcpInbound::State state;
};

// `cuts` says how many bytes come at a time, and whether they are read into memory directly; without it all at once.
Outcome Read(std::array<char, kMemoryBytes>& memory, const std::string& stream, std::string_view cuts) {
  memory.fill('.');
  const auto base = reinterpret_cast<uint64_t>(memory.data());
  const MemoryMap map = MemoryMap::Create("fuzz", {{base + kMemoryBytes / 4, kMemoryBytes / 2}}).value();
  TcpInbound inbound(kReceiver);
  for (std::string_view rest = stream; !rest.empty();) {
    const uint8_t cut = TakeByte(cuts);
    size_t size = std::min<size_t>(cut == 0 ? rest.size() : cut, rest.size());
    if (cut % 2 == 1 && inbound.left() > 0) {
      size = std::min<size_t>(size, inbound.left());
      std::copy_n(rest.begin(), size, reinterpret_cast<char*>(inbound.to()));
      inbound.Arrived(size);
    } else {
      inbound.Take(map, rest.substr(0, size));
    }
    rest.remove_prefix(size);
  }
  return {std::string(memory.data(), memory.size()), inbound.answers, inbound.state()};
}

}  // namespace
}  // namespace tenure::transfer

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace transfer = tenure::transfer;
  static std::array<char, transfer::kMemoryBytes> memory;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const std::string stream = transfer::StreamOf(bytes, reinterpret_cast<uint64_t>(memory.data()));
  const transfer::Outcome whole = transfer::Read(memory, stream, "");
  const transfer::Outcome cut = transfer::Read(memory, stream, bytes);
  TENURE_CHECK(whole.memory == cut.memory && whole.answers == cut.answers && whole.state == cut.state);
  TENURE_CHECK(whole.answers.size() <= stream.size());
  const std::string outside(transfer::kMemoryBytes / 4, '.');
  TENURE_CHECK(whole.memory.starts_with(outside) && whole.memory.ends_with(outside));
  return 0;
}
