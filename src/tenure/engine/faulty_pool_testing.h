// A pool in front of another that fails as a test wants it to. For tests only; as thread-safe as the pool behind it and
// the hooks.
#pragma once

#include <functional>
#include <optional>
#include <span>

#include "tenure/engine/forwarding_pool.h"

namespace tenure::engine {

class FaultyPool final : public ForwardingPool {
 public:
  enum class Call : uint8_t { kProbe, kPut, kGet, kRemove };
  // Runs before a call reaches the pool; what it returns, if not OK, is the call's answer.
  using BeforeCall = std::function<absl::Status(Call call)>;
  // Answers for an object instead of the pool, which then does not see it.
  using OnPut = std::function<std::optional<store::PutAnswer>(const store::PutObject& object)>;
  using OnGet = std::function<std::optional<store::KeyAnswer>(const store::GetObject& object)>;

  explicit FaultyPool(store::Pool& pool) : ForwardingPool(pool) {}

  // Set before the first call.
  void set_before_call(BeforeCall hook) { before_call_ = std::move(hook); }
  void set_on_put(OnPut hook) { on_put_ = std::move(hook); }
  void set_on_get(OnGet hook) { on_get_ = std::move(hook); }

  absl::Status Probe(std::span<const store::ObjectKey> keys, std::span<store::KeyAnswer> answers) override;
  absl::Status Put(std::span<const store::PutObject> objects, std::span<store::PutAnswer> answers) override;
  absl::Status Get(std::span<const store::GetObject> objects, std::span<store::KeyAnswer> answers) override;
  absl::Status Remove(std::span<const store::ObjectKey> keys, std::span<store::KeyAnswer> answers) override;

 private:
  absl::Status Begin(Call call) { return before_call_ ? before_call_(call) : absl::OkStatus(); }

  BeforeCall before_call_;
  OnPut on_put_;
  OnGet on_get_;
};

}  // namespace tenure::engine
