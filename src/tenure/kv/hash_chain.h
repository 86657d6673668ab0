// Chains of block hashes as vLLM computes them with its language-independent algorithms.
//
// hash_i = F([parent, tokens of block i, extra keys or null]) over canonical CBOR, parent of block 0 being NoneHash.
// The pickle variants (`sha256`, vLLM's default, and `xxhash`) depend on the byte-exact output of Python's pickle 5 and
// are not portable: they are not computed here, a connector takes such hashes from vLLM. Source: store_connector spec
// §2; vectors in §14.8.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "tenure/base/units.h"
#include "tenure/kv/block_hash.h"
#include "tenure/kv/cbor_writer.h"

namespace tenure::kv {

enum class HashAlgorithm : uint8_t {
  kSha256Cbor,  // "sha256_cbor": SHA-256, 32 bytes.
  kXxhashCbor,  // "xxhash_cbor": XXH3 of 128 bits, big-endian, 16 bytes.
};
std::string_view ToString(HashAlgorithm algorithm);
// Names the accepted algorithms, and for a pickle variant why it is not one of them.
absl::StatusOr<HashAlgorithm> ParseHashAlgorithm(std::string_view what, std::string_view text);

// The parent of every first block. `seed` is the text of PYTHONHASHSEED, even when empty; absent when it is not set:
// sha256 then has a fixed seed, xxhash a random one in each process, which is refused here since no two processes would
// share a block.
absl::StatusOr<BlockHash> NoneHash(HashAlgorithm algorithm, std::optional<std::string_view> seed);

// A multimodal item: `length` placeholder tokens (at least 1) from `offset` on stand for what `identifier` names.
struct MultimodalItem {
  std::string identifier;
  Tokens offset;
  Tokens length;
};

// Everything besides tokens that tells prompts apart. Texts are UTF-8.
struct HashExtras {
  struct Lora {
    std::string name;
    std::string path;
  };
  std::optional<Lora> lora;
  std::vector<MultimodalItem> items;  // Ascending by offset.
  std::string cache_salt;             // Empty: none. Enters block 0 only, and so every hash.
  // SHA-256 of the embeddings of each block, block 0 first; empty when the prompt has none.
  std::vector<std::array<uint8_t, 32>> prompt_embeds;
};

// Grows with the prompt: tokens in, one hash out per full block. One thread at a time; a moved or copied chain goes on
// by itself.
class HashChain {
 public:
  struct Options {
    HashAlgorithm algorithm = HashAlgorithm::kSha256Cbor;
    Tokens hash_block_size;  // At least 1.
    BlockHash none_hash;     // From NoneHash with the same algorithm.
    HashExtras extras;
  };

  // Refuses a block size below 1, a none_hash of another size than the algorithm's, items out of order or without
  // length.
  static absl::StatusOr<HashChain> Create(Options options);

  // Tokens that follow those appended before. A last block that is not full is kept until it is.
  void Append(std::span<const int64_t> tokens);
  std::span<const BlockHash> hashes() const { return hashes_; }

 private:
  explicit HashChain(Options options);
  void HashPending();
  void WriteExtras(int64_t block);

  Options options_;
  std::vector<BlockHash> hashes_;
  std::vector<int64_t> pending_;  // Tokens of the block that is not full.
  size_t first_item_ = 0;         // Items before it ended before the current block.
  CborWriter writer_;
};

// How KV events name a block: the last eight bytes, big-endian.
uint64_t EventInteger(const BlockHash& hash);

}  // namespace tenure::kv
