// The requests of `tenure explain`, read from JSON and checked. Reference: docs/reference/explain.md.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "tenure/kv/cache_config.h"
#include "tenure/kv/hit_search.h"
#include "tenure/kv/key_format.h"
#include "tenure/kv/masks.h"

namespace tenure::cli {

// Maxima of one request, so that none takes more than about 1 GiB.
inline constexpr int64_t kExplainHashesMax = int64_t{1} << 24;      // Hash units of a prompt or a length.
inline constexpr int64_t kExplainMaskChunksMax = int64_t{1} << 26;  // Chunks of all groups in one answer.
inline constexpr int64_t kExplainPresenceMax = int64_t{1} << 28;    // num_hashes times groups.
inline constexpr int64_t kExplainRanksMax = 1024;
inline constexpr int64_t kExplainKeysMax = int64_t{1} << 22;  // num_hashes times groups times ranks of a lookup.
inline constexpr int64_t kExplainJsonValuesMax = int64_t{1} << 22;
inline constexpr int kExplainJsonDepthMax = 8;

// present[group][k]: hash k of the group exists.
using PresentBits = std::vector<std::vector<bool>>;

struct StoreMaskRequest {
  kv::CacheConfig config;
  kv::StoreQuery query;
};
struct LookupMaskRequest {
  kv::CacheConfig config;
  Tokens length;
};
struct LoadMaskRequest {
  kv::CacheConfig config;
  Tokens length;  // Need not be aligned: the longest hit in it counts.
};
struct HitRequest {
  kv::CacheConfig config;
  int64_t num_hashes = 0;
  Tokens length_max;
  bool apply_eagle = true;
  PresentBits present;
};
struct LookupRequest {
  kv::CacheConfig config;
  int64_t num_hashes = 0;
  Tokens num_tokens;
  int64_t ranks = 1;  // Of every group.
  kv::SearchMode mode = kv::SearchMode::kTailFirst;
  PresentBits present;
};
struct KeysRequest {
  kv::KeyNames names;
  kv::KeyRank rank;
  kv::GroupIndex group;
  std::vector<std::string> hashes;  // Lower-case digits, whole bytes.
};

using ExplainRequest =
    std::variant<StoreMaskRequest, LookupMaskRequest, LoadMaskRequest, HitRequest, LookupRequest, KeysRequest>;

// The error names the field and its value.
absl::StatusOr<ExplainRequest> ParseExplainRequest(std::string_view line);

}  // namespace tenure::cli
