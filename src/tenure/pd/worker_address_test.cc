#include "tenure/pd/worker_address.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace tenure::pd
