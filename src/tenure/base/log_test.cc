#include "tenure/base/log.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

namespace tenure {
namespace {

using ::testing::internal::CaptureStderr;
using ::testing::internal::GetCapturedStderr;

size_t LineCount(const std::string& text) { return static_cast<size_t>(std::count(text.begin(), text.end(), '\n')); }

TEST(Log, WritesOneLineWithLevelOnStandardError) {
  CaptureStderr();
  LogWarning("pool {} refused {} puts", "embedded", 3);
  const std::string text = GetCapturedStderr();
  EXPECT_NE(text.find("warning tenure: pool embedded refused 3 puts\n"), std::string::npos) << text;
  EXPECT_EQ(LineCount(text), 1u) << text;
}

TEST(Log, DoesNotReadBracesInALine) {
  CaptureStderr();
  LogLine(LogLevel::kError, "key {} of {0}");
  EXPECT_NE(GetCapturedStderr().find("error tenure: key {} of {0}\n"), std::string::npos);
}

TEST(Log, LeavesOutDebugLinesByDefault) {
  CaptureStderr();
  LogLine(LogLevel::kDebug, "detail");
  EXPECT_EQ(GetCapturedStderr(), "");
}

TEST(Log, KeepsLinesOfSeveralThreadsWhole) {
  CaptureStderr();
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([] {
      for (int n = 0; n < 50; ++n) LogInfo("{}", std::string(80, 'x'));
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::string text = GetCapturedStderr();
  EXPECT_EQ(LineCount(text), 200u);
  size_t whole = 0;
  for (size_t at = text.find(std::string(80, 'x') + "\n"); at != std::string::npos;
       at = text.find(std::string(80, 'x') + "\n", at + 1)) {
    ++whole;
  }
  EXPECT_EQ(whole, 200u);
}

}  // namespace
}  // namespace tenure
