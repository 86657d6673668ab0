#include "tenure/handoff/closed_here.h"

#include <memory>

#include "gtest/gtest.h"
#include "tenure/handoff/recorder_testing.h"
#include "tenure/handoff/router.h"

namespace tenure::handoff {
namespace {

TEST(ClosedHere, AWorkerThatListensIsThereAndOneThatHasEndedIsNot) {
  auto router = Router::Start({}, [](std::string, std::string) { return std::nullopt; });
  ASSERT_TRUE(router.ok()) << router.status();
  const std::string address = (*router)->address();
  EXPECT_FALSE(IsClosedHere(address));
  router->reset();
  EXPECT_TRUE(WaitUntil([&] { return IsClosedHere(address); }));
}

TEST(ClosedHere, NothingIsKnownOfOtherHostsAndOfWhatIsNoAddress) {
  // TEST-NET-1, which nobody has.
  for (const char* address : {"tcp://192.0.2.1:1", "tcp://[2001:db8::1]:1", "tcp://localhost:1", "tcp://127.0.0.1:0",
                              "tcp://127.0.0.1", "tcp://[:1", "tcp://:1", "127.0.0.1:1", "ipc://file", ""}) {
    EXPECT_FALSE(IsClosedHere(address)) << address;
  }
}

}  // namespace
}  // namespace tenure::handoff
