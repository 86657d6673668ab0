// Short names for group specs and configurations in tests.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "tenure/kv/cache_config.h"
#include "tenure/kv/random_case_testing.h"

namespace tenure::kv::testing {

inline GroupSpec Full(int64_t block, bool eagle = false) {
  return {GroupKind::kFull, Tokens(block), Tokens(), Tokens(), eagle};
}
inline GroupSpec Window(int64_t block, int64_t window, bool eagle = false) {
  return {GroupKind::kWindow, Tokens(block), Tokens(window), Tokens(), eagle};
}
inline GroupSpec State(int64_t block, bool eagle = false) {
  return {GroupKind::kState, Tokens(block), Tokens(), Tokens(), eagle};
}
inline GroupSpec Chunked(int64_t block, int64_t chunk) {
  return {GroupKind::kChunked, Tokens(block), Tokens(), Tokens(chunk), false};
}
// The configuration, which must be valid.
inline CacheConfig Config(int64_t hash, int64_t scheduler, bool fine, std::vector<GroupSpec> groups,
                          bool use_eagle = false) {
  return MustCreate({Tokens(hash), Tokens(scheduler), fine, use_eagle, std::move(groups)});
}

}  // namespace tenure::kv::testing
