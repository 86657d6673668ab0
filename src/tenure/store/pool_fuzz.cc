// Bytes -> operations and time on a small embedded pool, each compared with the model. The first bytes choose the pool.
#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "tenure/base/random.h"
#include "tenure/store/pool_driver_testing.h"

namespace tenure::store {
namespace {

constexpr int kStepsAfterInput = 60;

// Numbers from the input, as many bytes as the bound needs; then random ones that follow from the input, so that short
// inputs, with which a fuzzer begins, reach a full pool as well.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : data_(data), size_(size), rest_(Seed(data, size)) {}
  bool ended() const { return next_ >= size_; }
  uint64_t Below(uint64_t bound) {
    if (ended()) return rest_.Below(bound);
    uint64_t value = 0;
    for (uint64_t reach = 1; reach < bound; reach <<= 8) value = value << 8 | (ended() ? 0u : data_[next_++]);
    return value % bound;
  }

 private:
  static uint64_t Seed(const uint8_t* data, size_t size) {
    uint64_t seed = size;
    for (size_t i = 0; i < size; ++i) seed = Random::Mix(seed ^ data[i]);
    return seed;
  }

  const uint8_t* data_;
  size_t size_;
  size_t next_ = 0;
  Random rest_;
};

PoolDriver::Setup ChooseSetup(Input& input) {
  PoolDriver::Setup setup;
  setup.options.mode = input.Below(2) == 0 ? PoolMode::kClosed : PoolMode::kIndependent;
  setup.options.memory = input.Below(4) == 0 ? MemoryKind::kVirtual : MemoryKind::kMapped;
  setup.options.shards = 1 << input.Below(4);
  setup.options.slab_bytes = Bytes(1024);
  setup.options.capacity = Bytes(1024 * static_cast<int64_t>(1 + input.Below(6)));
  setup.options.objects_max = 1024;
  setup.options.waiting_share_max = 0.25;
  setup.options.waiting_ttl = absl::Seconds(2);
  setup.options.pass_step_objects_max = static_cast<int64_t>(1 + input.Below(5));
  setup.sizes = input.Below(2) == 0 ? std::vector<int64_t>{256} : std::vector<int64_t>{100, 256, 341, 1024, 1025};
  setup.keys = static_cast<int>(4 + input.Below(28));
  return setup;
}

void RunOne(const uint8_t* data, size_t size) {
  Input input(data, size);
  const PoolDriver::Setup setup = ChooseSetup(input);
  PoolDriver driver(setup, [&input](uint64_t bound) { return input.Below(bound); });
  std::string wrong;
  for (int after = 0; after < kStepsAfterInput && wrong.empty(); after += input.ended()) wrong = driver.Step();
  if (wrong.empty()) wrong = driver.Finish();
  if (wrong.empty()) return;
  fmt::print(stderr, "{}\n{}\n", driver.History(), wrong);
  std::abort();
}

}  // namespace
}  // namespace tenure::store

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tenure::store::RunOne(data, size);
  return 0;
}
