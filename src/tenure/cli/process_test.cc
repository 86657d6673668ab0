// What only a process shows: signals, closed pipes, full disks. Each test runs the program in a child of its own.
#include "tenure/cli/process.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace tenure::cli {
namespace {

using ::testing::HasSubstr;

const std::string kLine = "{\"timestamp\": 0, \"input_length\": 1025, \"output_length\": 1, \"hash_ids\": [1, 2, 3]}\n";

std::string ReadToEnd(int descriptor) {
  std::string text;
  std::array<char, 4096> buffer;
  for (ssize_t count = 0; (count = read(descriptor, buffer.data(), buffer.size())) > 0;)
    text.append(buffer.data(), static_cast<size_t>(count));
  return text;
}

// False when nobody takes the bytes for half a minute.
bool WriteAll(int descriptor, std::string_view text) {
  constexpr int kWaitMilliseconds = 30'000;
  while (!text.empty()) {
    const ssize_t count = write(descriptor, text.data(), text.size());
    if (count > 0) {
      text.remove_prefix(static_cast<size_t>(count));
      continue;
    }
    pollfd room{descriptor, POLLOUT, 0};
    if (poll(&room, 1, kWaitMilliseconds) <= 0) return false;
  }
  return true;
}

struct Pipe {
  Pipe() { EXPECT_EQ(pipe(ends.data()), 0); }
  ~Pipe() {
    CloseRead();
    CloseWrite();
  }
  void CloseRead() { Close(ends[0]); }
  void CloseWrite() { Close(ends[1]); }
  static void Close(int& end) {
    if (end >= 0) close(end);
    end = -1;
  }
  std::array<int, 2> ends = {-1, -1};
};

// The program in a child, with these as its standard output and error.
pid_t Start(const std::vector<std::string>& arguments, int out, int err) {
  const pid_t child = fork();
  if (child != 0) return child;
  alarm(60);  // A hang fails the test instead of stopping it.
  dup2(out, STDOUT_FILENO);
  dup2(err, STDERR_FILENO);
  for (int descriptor = STDERR_FILENO + 1; descriptor < 64; ++descriptor) close(descriptor);
  _exit(RunProcess(arguments));
}

int ExitCode(pid_t child) {
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

TEST(Process, OutputGoesToDescriptorOne) {
  Pipe out;
  Pipe err;
  const pid_t child = Start({"models"}, out.ends[1], err.ends[1]);
  out.CloseWrite();
  err.CloseWrite();
  EXPECT_THAT(ReadToEnd(out.ends[0]), HasSubstr("deepseek-v3"));
  EXPECT_EQ(ReadToEnd(err.ends[0]), "");
  EXPECT_EQ(ExitCode(child), 0);
}

TEST(Process, AClosedPipeEndsItQuietlyWithOne) {
  Pipe out;
  Pipe err;
  out.CloseRead();
  const pid_t child = Start({"workload", "agentic", "--requests", "100000"}, out.ends[1], err.ends[1]);
  err.CloseWrite();
  EXPECT_EQ(ReadToEnd(err.ends[0]), "");
  EXPECT_EQ(ExitCode(child), 1);
}

TEST(Process, AFullDiskUnderStandardOutputIsOneLine) {
  const int full = open("/dev/full", O_WRONLY);
  ASSERT_GE(full, 0);
  Pipe err;
  const pid_t child = Start({"models"}, full, err.ends[1]);
  err.CloseWrite();
  EXPECT_EQ(ReadToEnd(err.ends[0]),
            "tenure: standard output: No space left on device; what was printed is not whole\n");
  EXPECT_EQ(ExitCode(child), 1);
  close(full);
}

// The trace is a pipe that stays open, so the program waits for its next line when the signal comes.
TEST(Process, CtrlCPrintsWhatItHasMarkedIncompleteWith130) {
  const std::filesystem::path fifo =
      std::filesystem::path(::testing::TempDir()) / ("tenure_process_test_" + std::to_string(getpid()));
  std::filesystem::remove(fifo);
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  Pipe out;
  Pipe err;
  const pid_t child = Start({"replay", fifo.string()}, out.ends[1], err.ends[1]);
  out.CloseWrite();
  err.CloseWrite();
  const int writer =
      open(fifo.c_str(), O_RDWR | O_NONBLOCK);  // O_RDWR: does not wait for a reader that may have failed.
  ASSERT_GE(writer, 0);
  // More than a pipe holds, so the last write ends only after the program has taken the first lines.
  std::string text;
  while (text.size() < 2 * size_t{65536}) text += kLine;
  ASSERT_TRUE(WriteAll(writer, text));
  ASSERT_EQ(kill(child, SIGINT), 0);
  const std::string table = ReadToEnd(out.ends[0]);
  EXPECT_THAT(table, HasSubstr("(INCOMPLETE)"));
  EXPECT_THAT(table, HasSubstr("hit rate"));
  EXPECT_THAT(ReadToEnd(err.ends[0]), HasSubstr("interrupted"));
  EXPECT_EQ(ExitCode(child), 130);
  close(writer);
  std::filesystem::remove(fifo);
}

}  // namespace
}  // namespace tenure::cli
