#include "tenure/store/eviction_policy.h"

#include <algorithm>

namespace tenure::store {
namespace {

class LruPolicy final : public EvictionPolicy {
 public:
  MonotonicTime Rank(const EvictionView& object, MonotonicTime /*now*/) const override {
    return std::max(object.written, object.leased);
  }
};

class MooncakePolicy final : public EvictionPolicy {
 public:
  MonotonicTime Rank(const EvictionView& object, MonotonicTime /*now*/) const override {
    return std::max(object.written, object.lease_deadline);
  }
};

}  // namespace

std::unique_ptr<EvictionPolicy> MakeLruPolicy() { return std::make_unique<LruPolicy>(); }
std::unique_ptr<EvictionPolicy> MakeMooncakePolicy() { return std::make_unique<MooncakePolicy>(); }

}  // namespace tenure::store
