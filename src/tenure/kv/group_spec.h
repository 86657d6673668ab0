// What one KV-cache group is: layers that share one KV shape and rule. Pure values.
//
// Source of the kinds: spec/store_connector.md §1.1. Full covers MLA; window covers sliding-window MLA; state covers
// Mamba and other recurrent layers in "align" mode; chunked is chunked local attention.
#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "tenure/base/units.h"

namespace tenure::kv {

enum class GroupKind : uint8_t { kFull, kWindow, kState, kChunked };

// "full", "window", "state", "chunked".
std::string_view ToString(GroupKind kind);
absl::StatusOr<GroupKind> ParseGroupKind(std::string_view what, std::string_view text);

struct GroupSpec {
  GroupKind kind = GroupKind::kFull;
  Tokens block_size;   // Tokens of one chunk (already scaled by decode context parallelism).
  Tokens window;       // kWindow only: tokens a query sees, itself included; at least 1.
  Tokens chunk;        // kChunked only: tokens of one attention chunk.
  bool eagle = false;  // A draft model reads this group one chunk past the hit (eagle, mtp and relatives).

  friend bool operator==(const GroupSpec&, const GroupSpec&) = default;
};

// Position of a group in the model's list of store groups; also the group id in keys.
using GroupIndex = Id<struct GroupIndexTag, int32_t>;
// Position in a prompt's list of block hashes: hash k covers tokens [0, (k + 1) * hash block size).
using HashIndex = Id<struct HashIndexTag, int64_t>;

// One logical chunk of one group, named by the hash that keys it. On every rank of the group it is one object.
struct GroupHash {
  GroupIndex group;
  HashIndex hash;
  friend auto operator<=>(const GroupHash&, const GroupHash&) = default;
};

}  // namespace tenure::kv
