#include "tenure/engine/cuda_copier.h"

#include <span>
#include <utility>

#include "tenure/base/status.h"

namespace tenure::engine {
namespace {

// Values of the driver's interface.
constexpr unsigned kStreamNonBlocking = 1;  // Does not wait for the default stream's work.
constexpr unsigned kEventBlockingSync = 1;  // A waiting thread sleeps.
constexpr unsigned kEventDisableTiming = 2;
constexpr unsigned kHostAllocPortable = 1;  // Pinned for every context.

uint64_t AddressOf(const std::byte* memory) { return reinterpret_cast<uintptr_t>(memory); }

// The context is current in this thread until the end of the scope.
class InContext {
 public:
  InContext(const CudaDriver& driver, CudaHandle context)
      : driver_(driver), status_(CudaStatus(driver, driver.context_push(context), "entering the device's context")) {}
  ~InContext() {
    CudaHandle popped = nullptr;
    if (status_.ok()) driver_.context_pop(&popped);
  }
  InContext(const InContext&) = delete;
  InContext& operator=(const InContext&) = delete;
  const absl::Status& status() const { return status_; }

 private:
  const CudaDriver& driver_;
  const absl::Status status_;
};

class CudaFence final : public Fence {
 public:
  CudaFence(const CudaDriver& driver, CudaHandle context, CudaHandle event)
      : driver_(driver), context_(context), event_(event) {}
  ~CudaFence() override {
    const InContext in(driver_, context_);
    driver_.event_destroy(event_);
  }
  CudaFence(const CudaFence&) = delete;
  CudaFence& operator=(const CudaFence&) = delete;

  absl::Status Wait() override {
    const InContext in(driver_, context_);
    TENURE_RETURN_IF_ERROR(in.status());
    return CudaStatus(driver_, driver_.event_synchronize(event_), "waiting for the engine's step");
  }

 private:
  const CudaDriver& driver_;
  const CudaHandle context_;
  const CudaHandle event_;
};

class CudaLane final : public CopyLane {
 public:
  CudaLane(const CudaDriver& driver, CudaHandle context, CudaHandle stream, std::span<std::byte> staging)
      : driver_(driver), context_(context), stream_(stream), staging_(staging) {}
  ~CudaLane() override {
    const InContext in(driver_, context_);
    driver_.stream_destroy(stream_);
    driver_.host_free(staging_.data());
  }
  CudaLane(const CudaLane&) = delete;
  CudaLane& operator=(const CudaLane&) = delete;

  std::span<std::byte> staging() override { return staging_; }

  absl::Status Gather(std::span<const store::Segment> from, std::byte* to) override {
    return Copy("copying KV from the device", [&]() -> CudaResult {
      for (const store::Segment& segment : from) {
        const CudaResult result = driver_.copy_to_host(to, AddressOf(segment.data), segment.size, stream_);
        if (result != 0) return result;
        to += segment.size;
      }
      return 0;
    });
  }

  absl::Status Scatter(const std::byte* from, std::span<const store::Segment> to) override {
    return Copy("copying KV to the device", [&]() -> CudaResult {
      for (const store::Segment& segment : to) {
        const CudaResult result = driver_.copy_to_device(AddressOf(segment.data), from, segment.size, stream_);
        if (result != 0) return result;
        from += segment.size;
      }
      return 0;
    });
  }

 private:
  // Waits for what was queued also when queueing the rest failed: the memory belongs to others afterwards.
  template <typename Queue>
  absl::Status Copy(const char* what, Queue queue) {
    const InContext in(driver_, context_);
    TENURE_RETURN_IF_ERROR(in.status());
    const CudaResult queued = queue();
    const CudaResult done = driver_.stream_synchronize(stream_);
    return CudaStatus(driver_, queued != 0 ? queued : done, what);
  }

  const CudaDriver& driver_;
  const CudaHandle context_;
  const CudaHandle stream_;
  const std::span<std::byte> staging_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<CudaCopier>> CudaCopier::Create(const CudaDriver& driver, int ordinal) {
  CudaDevice device = 0;
  CudaHandle context = nullptr;
  absl::Status status = CudaStatus(driver, driver.device_get(&device, ordinal), "finding the device");
  if (status.ok()) {
    status = CudaStatus(driver, driver.primary_context_retain(&context, device), "sharing the engine's context");
  }
  if (!status.ok()) {
    return Unavailable("KV is on cuda:{} and {}; check that this process sees the device", ordinal, Message(status));
  }
  return std::unique_ptr<CudaCopier>(new CudaCopier(driver, device, context));
}

CudaCopier::~CudaCopier() { driver_.primary_context_release(device_); }

absl::StatusOr<std::unique_ptr<CopyLane>> CudaCopier::OpenLane(Bytes bytes) {
  const InContext in(driver_, context_);
  TENURE_RETURN_IF_ERROR(in.status());
  CudaHandle stream = nullptr;
  TENURE_RETURN_IF_ERROR(CudaStatus(driver_, driver_.stream_create(&stream, kStreamNonBlocking), "making a stream"));
  void* memory = nullptr;
  const auto size = static_cast<size_t>(bytes.value());
  const absl::Status status =
      CudaStatus(driver_, driver_.host_alloc(&memory, size, kHostAllocPortable), "pinning staging memory");
  if (!status.ok()) {
    driver_.stream_destroy(stream);
    return ResourceExhausted("{}: {} bytes a thread; use fewer load_threads, or raise the limit on locked memory",
                             Message(status), size);
  }
  return std::make_unique<CudaLane>(driver_, context_, stream, std::span(static_cast<std::byte*>(memory), size));
}

absl::StatusOr<std::shared_ptr<Fence>> CudaCopier::RecordFence(uint64_t stream) {
  const InContext in(driver_, context_);
  TENURE_RETURN_IF_ERROR(in.status());
  CudaHandle event = nullptr;
  TENURE_RETURN_IF_ERROR(
      CudaStatus(driver_, driver_.event_create(&event, kEventBlockingSync | kEventDisableTiming), "making an event"));
  auto fence = std::make_shared<CudaFence>(driver_, context_, event);
  TENURE_RETURN_IF_ERROR(CudaStatus(driver_, driver_.event_record(event, reinterpret_cast<CudaHandle>(stream)),
                                    "marking the engine's step"));
  return fence;
}

absl::Status CudaCopier::OnDevice(const std::function<absl::Status()>& call) {
  const InContext in(driver_, context_);
  TENURE_RETURN_IF_ERROR(in.status());
  return call();
}

}  // namespace tenure::engine
