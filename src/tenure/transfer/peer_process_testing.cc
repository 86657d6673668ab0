#include "tenure/transfer/peer_process_testing.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <climits>

#include "tenure/base/check.h"
#include "tenure/pd/pull.h"

namespace tenure::transfer {
namespace {

std::string PeerProgram() {
  std::array<char, PATH_MAX> path;
  const ssize_t size = readlink("/proc/self/exe", path.data(), path.size());
  TENURE_CHECK(size > 0);
  const std::string self(path.data(), static_cast<size_t>(size));
  return self.substr(0, self.rfind('/')) + "/transfer_peer";
}

uint64_t ParseHex(std::string_view text) {
  uint64_t value = 0;
  TENURE_CHECK(std::from_chars(text.data(), text.data() + text.size(), value, 16).ec == std::errc());
  return value;
}

}  // namespace

// The thread sanitizer does not look: what orders a transport's write before this are messages that it cannot follow.
__attribute__((no_sanitize("thread"))) uint64_t Checksum(const void* bytes, size_t size) {
  const auto* byte = static_cast<const volatile unsigned char*>(bytes);
  uint64_t sum = 0xCBF29CE484222325u;  // FNV-1a.
  for (size_t i = 0; i < size; ++i) sum = (sum ^ byte[i]) * 0x100000001B3u;
  return sum;
}

// The message that carries addresses in production, as hexadecimal digits.
std::string AddressWord(const pd::TransportAddress& address) {
  pd::Pull pull;
  pull.transport = address;
  const std::string message = pd::EncodePull(pull).value();
  std::string word;
  for (const char byte : message) word += fmt::format("{:02x}", static_cast<uint8_t>(byte));
  return word;
}

pd::TransportAddress AddressOfWord(std::string_view word) {
  std::string message;
  for (size_t i = 0; i + 1 < word.size(); i += 2) message.push_back(static_cast<char>(ParseHex(word.substr(i, 2))));
  return pd::DecodePull(message).value().transport;
}

PeerProcess::PeerProcess(std::string_view kind, uint64_t bytes) {
  const std::string program = PeerProgram();
  const std::string kind_argument(kind);
  const std::string bytes_argument = fmt::format("{}", bytes);
  std::array<int, 2> in;
  std::array<int, 2> out;
  TENURE_CHECK(pipe2(in.data(), O_CLOEXEC) == 0 && pipe2(out.data(), O_CLOEXEC) == 0);
  pid_ = fork();
  TENURE_CHECK(pid_ >= 0);
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(in[0], STDIN_FILENO);
    dup2(out[1], STDOUT_FILENO);
    execl(program.c_str(), program.c_str(), kind_argument.c_str(), bytes_argument.c_str(), nullptr);
    _exit(127);
  }
  close(in[0]);
  close(out[1]);
  to_ = in[1];
  from_ = out[0];
  address_ = AddressOfWord(ReadLine());
}

PeerProcess::~PeerProcess() {
  Kill();
  Reap();
  close(to_);
  close(from_);
}

uint64_t PeerProcess::ChecksumOf(uint64_t offset, uint64_t size) {
  return ParseHex(Ask(fmt::format("sum {} {}", offset, size)));
}

void PeerProcess::StartWrites(const pd::TransportAddress& target, uint64_t to, int times) {
  (void)Ask(fmt::format("write {} {} {}", AddressWord(target), to, times));
}

void PeerProcess::Unmap() { (void)Ask("unmap"); }
void PeerProcess::RenewTransport() { address_ = AddressOfWord(Ask("renew")); }
void PeerProcess::Exec() { address_ = AddressOfWord(Ask("exec")); }

void PeerProcess::Signal(int number) const { TENURE_CHECK(kill(pid_, number) == 0); }

void PeerProcess::Kill() {
  if (pid_ < 0) return;
  Signal(SIGKILL);
  siginfo_t info;
  while (waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT) != 0) TENURE_CHECK(errno == EINTR);
}

void PeerProcess::Reap() {
  if (pid_ < 0) return;
  while (waitpid(pid_, nullptr, 0) < 0) TENURE_CHECK(errno == EINTR);
  pid_ = -1;
}

std::string PeerProcess::Ask(const std::string& command) {
  const std::string line = command + "\n";
  TENURE_CHECK(write(to_, line.data(), line.size()) == static_cast<ssize_t>(line.size()));
  return ReadLine();
}

// CHECKs that there is one: a peer that has died ends the test with its own words on standard error.
std::string PeerProcess::ReadLine() const {
  std::string line;
  while (true) {
    char byte = 0;
    const ssize_t size = read(from_, &byte, 1);
    if (size < 0 && errno == EINTR) continue;
    TENURE_CHECK(size == 1);
    if (byte == '\n') return line;
    line.push_back(byte);
  }
}

}  // namespace tenure::transfer
