// Copies through a driver table of our own: what is called, in which context, and what is left when a call fails. The
// device's memory is the host's here.
#include "tenure/engine/cuda_copier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tenure/base/status.h"
#include "tenure/engine/device_copier.h"
#include "tenure/engine/engine_rig_testing.h"
#include "tenure/engine/faulty_pool_testing.h"
#include "tenure/store/fake_pool_testing.h"

namespace tenure::engine {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

enum Function {
  kDeviceGet,
  kRetain,
  kPush,
  kStreamCreate,
  kStreamSynchronize,
  kEventCreate,
  kEventRecord,
  kEventSynchronize,
  kCopyToHost,
  kCopyToDevice,
  kHostAlloc,
  kFunctions,
};

// What the driver has been asked; reset by each test.
struct State {
  std::mutex mutex;
  int fails = kFunctions;  // This function fails, from call number `fails_from` on.
  int fails_from = 0;
  std::array<int, kFunctions> calls{};
  std::atomic<int> contexts{0}, streams{0}, events{0}, pinned{0};
  std::vector<CudaHandle> recorded;  // Streams.
  std::vector<std::pair<void*, std::vector<std::byte>>>
      queued;  // Copies of the lanes' streams: done when synchronised.
  std::string wrong;
};
State* state = nullptr;
thread_local int depth = 0;  // Of contexts that are current in this thread.

CudaHandle Handle(uintptr_t value) { return reinterpret_cast<CudaHandle>(value); }

CudaResult Result(Function function, bool needs_context = true) {
  const std::lock_guard lock(state->mutex);
  if (needs_context && depth != 1) state->wrong = "function " + std::to_string(function) + " outside of the context";
  const int call = state->calls[function]++;
  return function == state->fails && call >= state->fails_from ? 999 : 0;
}
CudaResult Queue(Function function, void* to, const void* from, size_t bytes) {
  if (const CudaResult result = Result(function); result != 0) return result;
  const auto* first = static_cast<const std::byte*>(from);
  const std::lock_guard lock(state->mutex);
  state->queued.emplace_back(to, std::vector<std::byte>(first, first + bytes));
  return 0;
}

CudaDriver FakeDriver() {
  CudaDriver driver;
  driver.init = [](unsigned) { return 0; };
  driver.device_get = [](CudaDevice* device, int ordinal) {
    *device = 100 + ordinal;
    return Result(kDeviceGet, false);
  };
  driver.primary_context_retain = [](CudaHandle* context, CudaDevice device) {
    const CudaResult result = Result(kRetain, false);
    if (result == 0) ++state->contexts;
    *context = Handle(static_cast<uintptr_t>(device));
    return result;
  };
  driver.primary_context_release = [](CudaDevice device) {
    if (device != 101) state->wrong = "another device is released";
    --state->contexts;
    return 0;
  };
  driver.context_push = [](CudaHandle context) {
    const CudaResult result = Result(kPush, false);
    if (context != Handle(101)) state->wrong = "another context";
    if (result == 0) ++depth;
    return result;
  };
  driver.context_pop = [](CudaHandle* context) {
    --depth;
    *context = Handle(101);
    return 0;
  };
  driver.stream_create = [](CudaHandle* stream, unsigned) {
    const CudaResult result = Result(kStreamCreate);
    if (result == 0) *stream = Handle(static_cast<uintptr_t>(200 + state->streams++));
    return result;
  };
  driver.stream_destroy = [](CudaHandle) {
    --state->streams;
    return 0;
  };
  driver.stream_synchronize = [](CudaHandle) {
    {
      const std::lock_guard lock(state->mutex);
      for (const auto& [to, bytes] : state->queued) std::memcpy(to, bytes.data(), bytes.size());
      state->queued.clear();
    }
    return Result(kStreamSynchronize);
  };
  driver.event_create = [](CudaHandle* event, unsigned) {
    const CudaResult result = Result(kEventCreate);
    if (result == 0) *event = Handle(static_cast<uintptr_t>(300 + state->events++));
    return result;
  };
  driver.event_record = [](CudaHandle, CudaHandle stream) {
    state->recorded.push_back(stream);
    return Result(kEventRecord);
  };
  driver.event_synchronize = [](CudaHandle) { return Result(kEventSynchronize); };
  driver.event_destroy = [](CudaHandle) {
    --state->events;
    return 0;
  };
  driver.copy_to_host = [](void* to, uint64_t from, size_t bytes, CudaHandle) {
    return Queue(kCopyToHost, to, reinterpret_cast<const void*>(from), bytes);
  };
  driver.copy_to_device = [](uint64_t to, const void* from, size_t bytes, CudaHandle) {
    return Queue(kCopyToDevice, reinterpret_cast<void*>(to), from, bytes);
  };
  driver.host_alloc = [](void** memory, size_t bytes, unsigned) {
    const CudaResult result = Result(kHostAlloc);
    if (result != 0) return result;
    *memory = std::malloc(bytes);
    ++state->pinned;
    return 0;
  };
  driver.host_free = [](void* memory) {
    std::free(memory);
    --state->pinned;
    return 0;
  };
  driver.error_string = [](CudaResult, const char** text) {
    *text = "made-up failure";
    return 0;
  };
  return driver;
}

class CudaCopierTest : public ::testing::Test {
 protected:
  CudaCopierTest() { state = &state_; }
  ~CudaCopierTest() override {
    EXPECT_EQ(state_.contexts, 0);
    EXPECT_EQ(state_.streams, 0);
    EXPECT_EQ(state_.events, 0);
    EXPECT_EQ(state_.pinned, 0);
    EXPECT_EQ(depth, 0);
    EXPECT_EQ(state_.wrong, "");
    state = nullptr;
  }
  absl::StatusOr<std::unique_ptr<CudaCopier>> Make() { return CudaCopier::Create(driver_, 1); }
  void FailFrom(Function function, int call = 0) {
    const std::lock_guard lock(state_.mutex);
    state_.fails = function;
    state_.fails_from = state_.calls[function] + call;
  }
  void Recover() {
    const std::lock_guard lock(state_.mutex);
    state_.fails = kFunctions;
  }
  static std::string Text(const absl::Status& status) { return std::string(Message(status)); }

  State state_;
  const CudaDriver driver_ = FakeDriver();
};

TEST_F(CudaCopierTest, GathersAndScattersInOrder) {
  const auto copier = Make().value();
  const auto lane = copier->OpenLane(Bytes(16)).value();
  ASSERT_EQ(lane->staging().size(), 16u);
  std::array<std::byte, 8> device{std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4},
                                  std::byte{5}, std::byte{6}, std::byte{7}, std::byte{8}};
  const std::array<store::Segment, 2> segments = {{{device.data() + 5, 3}, {device.data() + 1, 2}}};
  ASSERT_TRUE(lane->Gather(segments, lane->staging().data()).ok());
  const std::array<std::byte, 5> gathered{std::byte{6}, std::byte{7}, std::byte{8}, std::byte{2}, std::byte{3}};
  EXPECT_TRUE(std::equal(gathered.begin(), gathered.end(), lane->staging().begin()));
  device.fill(std::byte{0});
  ASSERT_TRUE(lane->Scatter(lane->staging().data(), segments).ok());
  EXPECT_EQ(device[5], std::byte{6});
  EXPECT_EQ(device[7], std::byte{8});
  EXPECT_EQ(device[1], std::byte{2});
  EXPECT_EQ(device[2], std::byte{3});
  EXPECT_EQ(device[0], std::byte{0});
}

TEST_F(CudaCopierTest, AFenceMarksTheEnginesStream) {
  const auto copier = Make().value();
  const auto fence = copier->RecordFence(77).value();
  EXPECT_THAT(state_.recorded, ElementsAre(Handle(77)));
  EXPECT_TRUE(fence->Wait().ok());
  EXPECT_TRUE(fence->Wait().ok());
  EXPECT_EQ(state_.calls[kEventSynchronize], 2);
}

TEST_F(CudaCopierTest, ADeviceThatIsNotThereIsNamedInOneLine) {
  for (const Function function : {kDeviceGet, kRetain}) {
    FailFrom(function);
    const absl::Status status = Make().status();
    EXPECT_TRUE(absl::IsUnavailable(status));
    EXPECT_THAT(Text(status), HasSubstr("cuda:1"));
    EXPECT_THAT(Text(status), HasSubstr("made-up failure (CUDA error 999)"));
  }
}

TEST_F(CudaCopierTest, ALaneThatCannotBeOpenedLeavesNothing) {
  const auto copier = Make().value();
  for (const Function function : {kPush, kStreamCreate, kHostAlloc}) {
    FailFrom(function);
    EXPECT_FALSE(copier->OpenLane(Bytes(16)).ok()) << function;
  }
  FailFrom(kHostAlloc);
  EXPECT_THAT(Text(copier->OpenLane(Bytes(16)).status()), HasSubstr("load_threads"));
}

TEST_F(CudaCopierTest, AFenceThatCannotBeMadeLeavesNothing) {
  const auto copier = Make().value();
  for (const Function function : {kPush, kEventCreate, kEventRecord}) {
    FailFrom(function);
    EXPECT_FALSE(copier->RecordFence(0).ok()) << function;
    Recover();
  }
  const auto fence = copier->RecordFence(0).value();
  for (const Function function : {kPush, kEventSynchronize}) {
    FailFrom(function);
    EXPECT_FALSE(fence->Wait().ok()) << function;
    Recover();
  }
}

// The memory belongs to others once a copy has returned.
TEST_F(CudaCopierTest, AFailedCopyWaitsForWhatItHadQueued) {
  const auto copier = Make().value();
  const auto lane = copier->OpenLane(Bytes(16)).value();
  std::array<std::byte, 8> device{};
  const std::array<store::Segment, 2> segments = {{{device.data(), 4}, {device.data() + 4, 4}}};
  for (const Function function : {kCopyToHost, kCopyToDevice}) {
    FailFrom(function, 1);
    const absl::Status status = function == kCopyToHost ? lane->Gather(segments, lane->staging().data())
                                                        : lane->Scatter(lane->staging().data(), segments);
    EXPECT_THAT(Text(status), HasSubstr("device"));
    EXPECT_THAT(state_.queued, IsEmpty());
  }
  for (const Function function : {kPush, kStreamSynchronize}) {
    FailFrom(function);
    EXPECT_FALSE(lane->Gather(segments, lane->staging().data()).ok());
    EXPECT_FALSE(lane->Scatter(lane->staging().data(), segments).ok());
    Recover();
  }
}

TEST_F(CudaCopierTest, ACallOnTheDeviceHasItsContext) {
  const auto copier = Make().value();
  int seen = 0;
  const auto look = [&seen] {
    seen = depth;
    return absl::AbortedError("its own");
  };
  EXPECT_EQ(copier->OnDevice(look), absl::AbortedError("its own"));
  EXPECT_EQ(std::exchange(seen, 0), 1);
  EXPECT_EQ(depth, 0);
  FailFrom(kPush);
  EXPECT_THAT(Text(copier->OnDevice(look)), HasSubstr("made-up failure"));
  EXPECT_EQ(seen, 0) << "called without the device";
}

kv::CacheConfig::Options TwoGroups() {
  const kv::GroupSpec full{kv::GroupKind::kFull, Tokens(16), Tokens(), Tokens(), false};
  return {.hash_block_size = Tokens(16),
          .scheduler_block_size = Tokens(16),
          .fine = false,
          .use_eagle = false,
          .groups = {full, full}};
}

StepPlan SavePlan(uint64_t job, const std::string& request) {
  StepPlan plan;
  plan.saves.push_back({.job = job,
                        .request = request,
                        .length = Tokens(48),
                        .prefill_end = Tokens(49),
                        .first_hash = 0,
                        .hashes = TestHashes(1, 0, 3),
                        .blocks = {{1, 2, 3}, {4, 5, 6}},
                        .boundary_puts = {},
                        .tokens = {}});
  return plan;
}
StepPlan LoadPlan() {
  StepPlan plan;
  LoadOrder order{.request = "l", .local = Tokens(0), .length = Tokens(48), .chunks = {}};
  for (int group = 0; group < 2; ++group) {
    for (int64_t k = 0; k < 3; ++k) {
      order.chunks.push_back({kv::GroupIndex(group), static_cast<BlockId>(20 + 3 * group + k), TestHash(1, k)});
    }
  }
  plan.loads.push_back(std::move(order));
  return plan;
}

class DeviceWorkerTest : public CudaCopierTest {
 protected:
  DeviceWorkerTest() : pool_(clock_, false), copier_(Make().value()) {
    rig_ = std::make_unique<EngineRig>(
        EngineRigOptions{.config = TwoGroups(), .batch_bytes = Bytes(4 * 128), .copier = copier_.get()}, pool_, clock_);
    for (BlockId block = 1; block < 10; ++block) rig_->Fill(block, 7);
  }
  WorkerReport Save(uint64_t job, const std::string& request) {
    rig_->worker().StartSaves(SavePlan(job, request), 55);
    return rig_->Settle();
  }
  WorkerReport Load() {
    rig_->worker().StartLoads(LoadPlan(), 56);
    return rig_->Settle();
  }

  ManualClock clock_;
  store::FakePool pool_;
  std::unique_ptr<CudaCopier> copier_;
  std::unique_ptr<EngineRig> rig_;
};

TEST_F(DeviceWorkerTest, SavesAndLoadsThroughStagingMemory) {
  EXPECT_EQ(Save(1, "r").counters.saved_keys_total, 6);
  EXPECT_THAT(state_.recorded, ElementsAre(Handle(55)));
  EXPECT_EQ(state_.calls[kEventSynchronize], 1);
  EXPECT_THAT(Load().loaded, ElementsAre("l"));
  for (BlockId k = 0; k < 3; ++k) {
    EXPECT_TRUE(rig_->Holds(0, 20 + k, 1 + k, 7));
    EXPECT_TRUE(rig_->Holds(1, 23 + k, 4 + k, 7));
  }
  EXPECT_EQ(state_.calls[kStreamSynchronize], 4);  // Two batches each way.
}

TEST_F(DeviceWorkerTest, LoadsFollowWhatTheEngineHasQueued) {
  Save(1, "r");
  EXPECT_THAT(Load().loaded, ElementsAre("l"));
  EXPECT_THAT(state_.recorded, ElementsAre(Handle(55), Handle(56)));
  EXPECT_EQ(state_.calls[kEventSynchronize], 2);
  const std::vector<std::byte> before = rig_->Memory();
  FailFrom(kEventRecord);
  const WorkerReport report = Load();
  EXPECT_THAT(report.failed, ElementsAre("l"));
  EXPECT_EQ(report.failed_blocks.size(), 6u);
  EXPECT_EQ(rig_->Memory(), before) << "nobody knows what the engine still does to the blocks";
}

TEST_F(DeviceWorkerTest, OnlyWhatWasLoadedIsScattered) {
  Save(1, "r");
  pool_.Lose(rig_->Key(0, TestHash(1, 1)));
  const std::vector<std::byte> before = rig_->Memory();
  EXPECT_THAT(Load().failed_blocks, ElementsAre(21, 24, 25));
  EXPECT_TRUE(rig_->Holds(0, 20, 1, 7));
  EXPECT_TRUE(rig_->Holds(0, 22, 3, 7));
}

TEST_F(DeviceWorkerTest, AStepThatIsNotKnownToBeWrittenIsNotSaved) {
  for (const Function function : {kEventCreate, kEventSynchronize, kCopyToHost}) {
    FailFrom(function);
    const WorkerReport report = Save(static_cast<uint64_t>(10 + function), "r");
    EXPECT_THAT(report.saved, ElementsAre(10 + function));
    EXPECT_THAT(pool_.Keys(), IsEmpty()) << function;
    Recover();
  }
  Save(1, "r");
  EXPECT_EQ(pool_.Keys().size(), 6u);
}

TEST_F(DeviceWorkerTest, ADeviceThatDoesNotTakeTheBytesFailsTheLoad) {
  Save(1, "r");
  FailFrom(kCopyToDevice);
  const WorkerReport report = Load();
  EXPECT_THAT(report.failed, ElementsAre("l"));
  EXPECT_THAT(report.failed_blocks, ElementsAre(20, 21, 22, 23, 24, 25));
  EXPECT_EQ(report.counters.failed_load_keys_total[static_cast<size_t>(LoadFailure::kCopy)], 4);
  EXPECT_EQ(pool_.Keys().size(), 6u);
}

// A pool that takes the device's addresses: the bytes go in one step, at the same moments as copies.
class DirectWorkerTest : public DeviceWorkerTest {
 protected:
  DirectWorkerTest() : faulty_(pool_), direct_(MakeDirectCopier(std::move(copier_))) {
    faulty_.set_before_call([this](FaultyPool::Call call) {
      if (call == FaultyPool::Call::kPut || call == FaultyPool::Call::kGet) {
        const std::lock_guard lock(state_.mutex);
        waited_at_.push_back(state_.calls[kEventSynchronize]);
      }
      return absl::OkStatus();
    });
    rig_ = std::make_unique<EngineRig>(
        EngineRigOptions{.config = TwoGroups(), .batch_bytes = Bytes(4 * 128), .copier = direct_.get()}, faulty_,
        clock_);
    for (BlockId block = 1; block < 10; ++block) rig_->Fill(block, 7);
  }
  ~DirectWorkerTest() override { rig_.reset(); }

  FaultyPool faulty_;
  const std::unique_ptr<Copier> direct_;
  std::vector<int> waited_at_;  // Waits for events that had ended when a put or get began.
};

TEST_F(DirectWorkerTest, PutsAndGetsNameTheDevicesMemoryAfterItsEvents) {
  EXPECT_EQ(Save(1, "r").counters.saved_keys_total, 6);
  EXPECT_THAT(state_.recorded, ElementsAre(Handle(55)));
  EXPECT_THAT(Load().loaded, ElementsAre("l"));
  EXPECT_THAT(state_.recorded, ElementsAre(Handle(55), Handle(56)));
  EXPECT_THAT(waited_at_, ElementsAre(1, 1, 2, 2)) << "two batches each way";
  for (BlockId k = 0; k < 3; ++k) {
    EXPECT_TRUE(rig_->Holds(0, 20 + k, 1 + k, 7));
    EXPECT_TRUE(rig_->Holds(1, 23 + k, 4 + k, 7));
  }
  EXPECT_EQ(state_.pinned, 0);
  EXPECT_EQ(state_.streams, 0);
  EXPECT_EQ(state_.calls[kCopyToHost] + state_.calls[kCopyToDevice], 0);
}

TEST_F(DirectWorkerTest, AStepThatIsNotKnownToBeDoneIsNeitherReadNorWritten) {
  for (const Function function : {kEventCreate, kEventRecord, kEventSynchronize}) {
    FailFrom(function);
    EXPECT_THAT(Save(static_cast<uint64_t>(10 + function), "r").saved, ElementsAre(10 + function));
    EXPECT_THAT(Load().failed, ElementsAre("l"));
    Recover();
  }
  EXPECT_THAT(waited_at_, IsEmpty());
}

TEST_F(CudaCopierTest, AWorkerWithoutStagingIsNotMade) {
  const auto copier = Make().value();
  ManualClock clock;
  store::FakePool pool(clock, false);
  std::vector<std::byte> memory(1024);
  for (const int lanes : {0, 1, 2}) {  // Opened before the one that fails: of the loader's threads and the saver.
    FailFrom(kHostAlloc, lanes);
    BlockMemory::Options blocks{.groups = {{{{memory.data(), 256, 256}}}, {{{memory.data(), 256, 256}}}},
                                .regions = {{memory.data(), 1024}},
                                .num_blocks = 4};
    const store::NamespaceId name_space = pool.OpenNamespace("m@").value();
    StoreWorkerOptions options{.config = kv::CacheConfig::Create(TwoGroups()).value(),
                               .namespaces = {{name_space}, {name_space}}};
    options.stripes = {1, 1};
    options.load_threads = 2;
    const auto worker =
        StoreWorker::Create(std::move(options), BlockMemory::Create(blocks).value(), pool, *copier, clock);
    EXPECT_TRUE(absl::IsResourceExhausted(worker.status())) << lanes;
    Recover();
  }
}

TEST(DeviceCopier, AKindOfDeviceThatIsNotKnownIsNamed) {
  EXPECT_TRUE(MakeDeviceCopier("cpu", 0).ok());
  const absl::Status status = MakeDeviceCopier("xpu", 3).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(Message(status)), HasSubstr("xpu:3"));
}

// Machines with a driver make one; without, one line says what to do.
TEST(DeviceCopier, WithoutADriverOneLineSaysWhatToDo) {
  const auto copier = MakeDeviceCopier("cuda", 0);
  if (copier.ok()) return;
  EXPECT_TRUE(absl::IsUnavailable(copier.status()));
  EXPECT_THAT(std::string(Message(copier.status())), HasSubstr("cuda:0"));
}

}  // namespace
}  // namespace tenure::engine
