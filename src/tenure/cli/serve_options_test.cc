// What command line and configuration file make of each other. Wrong options are tested on the program
// (tests/e2e/daemon_options_test.sh).
#include "tenure/cli/serve_options.h"

#include <filesystem>
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tenure/base/status.h"

namespace tenure::cli {
namespace {

constexpr Bytes kPlenty{int64_t{1} << 40};

class ServeOptionsTest : public ::testing::Test {
 protected:
  ServeOptionsTest() {
    std::string pattern = (std::filesystem::temp_directory_path() / "tenure-XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
    arguments_.socket = folder_ + "/pool.sock";
    arguments_.memory = "1GiB";
  }
  ~ServeOptionsTest() override { std::filesystem::remove_all(folder_); }

  std::string Config(const std::string& text) {
    const std::string path = folder_ + "/serve.toml";
    std::ofstream(path) << text;
    return path;
  }

  std::string folder_;
  ServeArguments arguments_;
};

TEST_F(ServeOptionsTest, DefaultsAreTheDocumentedOnes) {
  const ServeOptions options = ReadServeOptions(arguments_, kPlenty).value();
  EXPECT_EQ(options.memory, Bytes(int64_t{1} << 30));
  EXPECT_EQ(options.mode, store::PoolMode::kClosed);
  EXPECT_FALSE(options.group.has_value());
  EXPECT_FALSE(options.metrics.has_value());
  EXPECT_EQ(options.drain_timeout, absl::Seconds(10));
  EXPECT_EQ(options.clients_max, 1024);
  EXPECT_EQ(options.held_bytes_max, Bytes(0));
  EXPECT_FALSE(options.huge_pages);
}

TEST_F(ServeOptionsTest, CommandLineWinsOverTheFile) {
  arguments_.config = Config(
      "memory = \"2GiB\"\nmode = \"independent\"\nmetrics = 9108\nhuge_pages = true\nclients_max = 5\ngroup = \"7\"\n"
      "drain_timeout = \"3s\"\nheld_bytes_max = \"64MiB\"\n");
  const ServeOptions options = ReadServeOptions(arguments_, kPlenty).value();
  EXPECT_EQ(options.memory, Bytes(int64_t{1} << 30));
  EXPECT_EQ(options.mode, store::PoolMode::kIndependent);
  EXPECT_EQ(options.metrics->port, 9108);
  EXPECT_TRUE(options.huge_pages);
  EXPECT_EQ(options.clients_max, 5);
  EXPECT_EQ(options.group, 7u);
  EXPECT_EQ(options.drain_timeout, absl::Seconds(3));
  EXPECT_EQ(options.held_bytes_max, Bytes(64 << 20));
}

TEST_F(ServeOptionsTest, MemoryIsWholeSlabsAndAtMostWhatIsAvailable) {
  arguments_.memory = "100MiB";
  EXPECT_EQ(ReadServeOptions(arguments_, kPlenty)->memory, Bytes(64 << 20));
  const auto refused = ReadServeOptions(arguments_, Bytes(63 << 20));
  EXPECT_TRUE(absl::IsInvalidArgument(refused.status()));
  EXPECT_THAT(std::string(Message(refused.status())), ::testing::HasSubstr("63 MiB available"));
}

TEST_F(ServeOptionsTest, MachineHasMemory) {
  EXPECT_GT(MemoryAvailable(), Bytes(1 << 20));
  EXPECT_LT(MemoryAvailable(), Bytes(INT64_MAX));
}

}  // namespace
}  // namespace tenure::cli
