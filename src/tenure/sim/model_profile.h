// The KV cache of one model as replay needs it: its groups, their rules and what one object of each weighs. Values.
//
// A built-in profile is made for a block size and says how it follows from the model's public configuration
// (model_profile.cc and docs/reference/model-profiles.md); a JSON file defines any other. Sizes are those of the whole
// model, all ranks and layers together.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "tenure/base/units.h"
#include "tenure/kv/cache_config.h"

namespace tenure::sim {

struct ModelProfile {
  std::string name;
  kv::CacheConfig config;          // Its hash block is the trace's block.
  std::vector<Bytes> chunk_bytes;  // Of one object of each group.

  Bytes largest_chunk() const;
};

inline constexpr Bytes kChunkBytesMax{int64_t{2} << 30};  // What a pool takes as one object.
inline constexpr size_t kModelFileBytesMax = size_t{1} << 20;

// What a built-in model weighs, apart from any block size.
struct BuiltinModel {
  std::string_view name;
  std::string_view layers;  // "80 full", for people.
  Bytes full_token_bytes;   // Of all full-attention (or MLA) layers.
  Bytes window_token_bytes;
  Tokens window;      // 0: no windowed layers.
  Bytes state_bytes;  // Of one snapshot of all recurrent layers; 0: none.

  Bytes window_bytes() const { return window_token_bytes * window.value(); }
};
std::span<const BuiltinModel> BuiltinModels();

// `model` with every group's block set to `block`. A window shorter than a block weighs its own tokens, not the
// block's.
absl::StatusOr<ModelProfile> MakeBuiltinProfile(const BuiltinModel& model, Tokens block);

// {"name": text, "hash_block_size": n, "groups": [{"kind", "block_size", "window", "chunk", "eagle", "bytes"}]}, with
// "use_eagle" and "scheduler_block_size" as in `tenure explain`. The error names the field. Every block must be a
// multiple of `trace_block`.
absl::StatusOr<ModelProfile> ParseModelProfile(std::string_view json, Tokens trace_block);

// A built-in name, or the path of a JSON file.
absl::StatusOr<ModelProfile> LoadModel(const std::string& name_or_path, Tokens trace_block);

}  // namespace tenure::sim
