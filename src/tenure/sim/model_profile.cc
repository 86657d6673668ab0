#include "tenure/sim/model_profile.h"

#include <algorithm>
#include <array>
#include <utility>

#include "tenure/base/status.h"

namespace tenure::sim {
namespace {

constexpr int64_t kBf16 = 2;
constexpr int64_t kFloat32 = 4;

// Keys and values of one layer for one token.
constexpr int64_t Attention(int64_t kv_heads, int64_t head_dim) { return 2 * kv_heads * head_dim * kBf16; }
// Multi-head latent attention keeps one compressed vector and the rotary part of the key.
constexpr int64_t Latent(int64_t kv_lora_rank, int64_t rope_head_dim) { return (kv_lora_rank + rope_head_dim) * kBf16; }
// A gated linear-attention layer: one matrix a head, and the last `kernel - 1` inputs of a short convolution.
constexpr int64_t LinearState(int64_t heads, int64_t key_dim, int64_t value_dim, int64_t state_width,
                              int64_t convolution_dim, int64_t kernel) {
  return heads * key_dim * value_dim * state_width + (kernel - 1) * convolution_dim * kBf16;
}

// From each model's published config.json (layers, heads, dimensions, window, cache type). 16-bit KV; draft layers left
// out.
constexpr std::array<BuiltinModel, 6> kBuiltins{{
    // 80 layers, 8 KV heads of 128.
    {"llama-3.1-70b", "80 full", Bytes(80 * Attention(8, 128)), Bytes(0), Tokens(0), Bytes(0)},
    // 61 layers, MLA: kv_lora_rank 512, qk_rope_head_dim 64. The multi-token-prediction layer is left out.
    {"deepseek-v3", "61 MLA", Bytes(61 * Latent(512, 64)), Bytes(0), Tokens(0), Bytes(0)},
    // 62 layers, 16 KV heads of 128; every sixth layer is global (10), the others (52) see 1,024 tokens.
    {"gemma-3-27b", "10 full, 52 window 1024", Bytes(10 * Attention(16, 128)), Bytes(52 * Attention(16, 128)),
     Tokens(1024), Bytes(0)},
    // 36 layers, 8 KV heads of 64, alternately a window of 128 and full.
    {"gpt-oss-120b", "18 full, 18 window 128", Bytes(18 * Attention(8, 64)), Bytes(18 * Attention(8, 64)), Tokens(128),
     Bytes(0)},
    // 48 layers, every fourth full (12) with 2 KV heads of 256; 36 gated delta layers with 32 value heads, 128 by 128,
    // state in the
    // model's 16-bit type (vLLM's default), convolution of 4 over 2 * 16 * 128 key and 32 * 128 value channels.
    {"qwen3-next-80b", "12 full, 36 state", Bytes(12 * Attention(2, 256)), Bytes(0), Tokens(0),
     Bytes(36 * LinearState(32, 128, 128, kBf16, 2 * 16 * 128 + 32 * 128, 4))},
    // 27 layers: 7 MLA (kv_lora_rank 512, qk_rope_head_dim 64), 20 KDA with 32 heads, 128 by 128, state in 32-bit
    // floats, a
    // convolution of 4 over each of query, key and value.
    {"kimi-linear-48b", "7 MLA, 20 state", Bytes(7 * Latent(512, 64)), Bytes(0), Tokens(0),
     Bytes(20 * LinearState(32, 128, 128, kFloat32, 3 * 32 * 128, 4))},
}};

kv::GroupSpec Spec(kv::GroupKind kind, Tokens block, Tokens window = Tokens()) {
  return {.kind = kind, .block_size = block, .window = window, .chunk = Tokens(), .eagle = false};
}

}  // namespace

Bytes ModelProfile::largest_chunk() const { return *std::ranges::max_element(chunk_bytes); }

std::span<const BuiltinModel> BuiltinModels() { return kBuiltins; }

absl::StatusOr<ModelProfile> MakeBuiltinProfile(const BuiltinModel& model, Tokens block) {
  kv::CacheConfig::Options options{.hash_block_size = block,
                                   .scheduler_block_size = block,
                                   .fine = false,
                                   .use_eagle = false,
                                   .groups = {Spec(kv::GroupKind::kFull, block)}};
  std::vector<Bytes> bytes = {model.full_token_bytes * block.value()};
  if (model.window > Tokens(0)) {
    options.groups.push_back(Spec(kv::GroupKind::kWindow, block, model.window));
    bytes.push_back(model.window_token_bytes * std::min(model.window, block).value());
  }
  if (model.state_bytes > Bytes(0)) {
    options.groups.push_back(Spec(kv::GroupKind::kState, block));
    bytes.push_back(model.state_bytes);
  }
  if (*std::ranges::max_element(bytes) > kChunkBytesMax) {
    return InvalidArgument("--trace-block {}: an object of {} is larger than 2 GiB; give a smaller block",
                           block.value(), model.name);
  }
  TENURE_ASSIGN_OR_RETURN(kv::CacheConfig config, kv::CacheConfig::Create(std::move(options)));
  return ModelProfile{std::string(model.name), std::move(config), std::move(bytes)};
}

}  // namespace tenure::sim
