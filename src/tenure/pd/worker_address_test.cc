#include "tenure/pd/worker_address.h"

#include <gtest/gtest.h>

#include <utility>

namespace tenure::pd {
namespace {

TEST(WorkerAddress, NamesAHostAndAPort) {
  for (const char* address : {"tcp://10.0.0.1:1", "tcp://prefill:65535", "tcp://[fd00::1]:8998"}) {
    EXPECT_TRUE(IsWorkerAddress(address)) << address;
  }
}

TEST(WorkerAddress, IsNothingElse) {
  for (const char* address :
       {"", "tcp://", "tcp://h", "tcp://h:", "tcp://:1", "tcp://h:0", "tcp://h:65536", "tcp://h:65537", "tcp://h:-1",
        "tcp://h:+1", "tcp://h:1x", "tcp://h:4294967297", "tcp://h:*", "ipc://h:1", "inproc://h:1", "TCP://h:1"}) {
    EXPECT_FALSE(IsWorkerAddress(address)) << address;
  }
}

TEST(WorkerAddress, HostsLoseTheirBracketsAndPortsAreNumbers) {
  for (const auto& [text, host] : {std::pair("tcp://10.0.0.1:65535", "10.0.0.1"),
                                   {"tcp://[::1]:65535", "::1"},
                                   {"tcp://host:65535", "host"},
                                   {"tcp://[:65535", "["},
                                   {"tcp://[]:65535", "[]"}}) {
    const auto address = ParseWorkerAddress(text);
    ASSERT_TRUE(address) << text;
    EXPECT_EQ(address->host, host);
    EXPECT_EQ(address->port, 65'535);
  }
}

}  // namespace
}  // namespace tenure::pd
