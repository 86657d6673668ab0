#include "tenure/kv/hash_chain.h"

#include <openssl/sha.h>
#include <xxhash.h>

#include <algorithm>
#include <utility>

#include "tenure/base/status.h"

namespace tenure::kv {
namespace {

constexpr std::string_view kDefaultSeed = "vllm-none-hash";

size_t HashSize(HashAlgorithm algorithm) { return algorithm == HashAlgorithm::kSha256Cbor ? 32 : 16; }

BlockHash Digest(HashAlgorithm algorithm, std::span<const uint8_t> bytes) {
  if (algorithm == HashAlgorithm::kSha256Cbor) {
    std::array<uint8_t, SHA256_DIGEST_LENGTH> digest{};
    SHA256(bytes.data(), bytes.size(), digest.data());
    return BlockHash::FromTrusted(digest);
  }
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(bytes.data(), bytes.size()));
  return BlockHash::FromTrusted(canonical.digest);
}

absl::Status CheckItems(const std::vector<MultimodalItem>& items) {
  for (size_t i = 0; i < items.size(); ++i) {
    if (items[i].offset < Tokens() || (i > 0 && items[i].offset < items[i - 1].offset)) {
      return InvalidArgument("items[{}].offset is {}; sort the items by offset, from 0", i, items[i].offset.value());
    }
    if (items[i].length < Tokens(1)) {
      return InvalidArgument("items[{}].length is {}; use at least 1 token", i, items[i].length.value());
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::string_view ToString(HashAlgorithm algorithm) {
  return algorithm == HashAlgorithm::kSha256Cbor ? "sha256_cbor" : "xxhash_cbor";
}

absl::StatusOr<HashAlgorithm> ParseHashAlgorithm(std::string_view what, std::string_view text) {
  for (const HashAlgorithm algorithm : {HashAlgorithm::kSha256Cbor, HashAlgorithm::kXxhashCbor}) {
    if (text == ToString(algorithm)) return algorithm;
  }
  if (text == "sha256" || text == "xxhash") {
    return InvalidArgument("{} is {}, whose hashes are of Python pickles; use {}_cbor outside of vLLM", what, text,
                           text);
  }
  return InvalidArgument("{} is \"{}\"; use sha256_cbor or xxhash_cbor", what, text.substr(0, 64));
}

absl::StatusOr<BlockHash> NoneHash(HashAlgorithm algorithm, std::optional<std::string_view> seed) {
  if (!seed.has_value() && algorithm == HashAlgorithm::kXxhashCbor) {
    return FailedPrecondition(
        "PYTHONHASHSEED is not set; set it to one text on every engine, since xxhash_cbor starts from it");
  }
  CborWriter writer;
  writer.Text(seed.value_or(kDefaultSeed));
  return Digest(algorithm, writer.bytes());
}

absl::StatusOr<HashChain> HashChain::Create(Options options) {
  if (options.hash_block_size < Tokens(1)) {
    return InvalidArgument("hash_block_size is {}; use at least 1 token", options.hash_block_size.value());
  }
  if (options.none_hash.size() != HashSize(options.algorithm)) {
    return InvalidArgument("none_hash has {} bytes; {} has {}", options.none_hash.size(), ToString(options.algorithm),
                           HashSize(options.algorithm));
  }
  TENURE_RETURN_IF_ERROR(CheckItems(options.extras.items));
  return HashChain(std::move(options));
}

HashChain::HashChain(Options options) : options_(std::move(options)) {}

void HashChain::Append(std::span<const int64_t> tokens) {
  const auto block_size = static_cast<size_t>(options_.hash_block_size.value());
  while (!tokens.empty()) {
    const size_t taken = std::min(block_size - pending_.size(), tokens.size());
    pending_.insert(pending_.end(), tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(taken));
    tokens = tokens.subspan(taken);
    if (pending_.size() == block_size) HashPending();
  }
}

void HashChain::HashPending() {
  writer_.Clear();
  writer_.Array(3);
  writer_.Bytes(hashes_.empty() ? options_.none_hash.bytes() : hashes_.back().bytes());
  writer_.Array(pending_.size());
  for (const int64_t token : pending_) writer_.Integer(token);
  WriteExtras(static_cast<int64_t>(hashes_.size()));
  hashes_.push_back(Digest(options_.algorithm, writer_.bytes()));
  pending_.clear();
}

// One tagged tuple for each thing that tells this block from another with the same tokens; null when there is none.
void HashChain::WriteExtras(int64_t block) {
  const HashExtras& extras = options_.extras;
  const Tokens begin = options_.hash_block_size * block;
  const Tokens end = begin + options_.hash_block_size;
  const auto& items = extras.items;
  while (first_item_ < items.size() && items[first_item_].offset + items[first_item_].length <= begin) ++first_item_;
  std::vector<const MultimodalItem*> overlapping;
  for (size_t i = first_item_; i < items.size() && items[i].offset < end; ++i) {
    if (items[i].offset + items[i].length > begin) overlapping.push_back(&items[i]);
  }
  const bool salted = block == 0 && !extras.cache_salt.empty();
  const bool embedded = static_cast<size_t>(block) < extras.prompt_embeds.size();
  const size_t count =
      (extras.lora.has_value() ? 1u : 0u) + overlapping.size() + (salted ? 1u : 0u) + (embedded ? 1u : 0u);
  if (count == 0) {
    writer_.Null();
    return;
  }
  writer_.Array(count);
  if (extras.lora.has_value()) {
    writer_.Array(3);
    writer_.Text("lora");
    writer_.Text(extras.lora->name);
    writer_.Text(extras.lora->path);
  }
  for (const MultimodalItem* item : overlapping) {
    writer_.Array(3);
    writer_.Text("mm");
    writer_.Text(item->identifier);
    writer_.Integer((item->offset - begin).value());
  }
  if (salted) {
    writer_.Array(2);
    writer_.Text("cache_salt");
    writer_.Text(extras.cache_salt);
  }
  if (embedded) {
    writer_.Array(2);
    writer_.Text("prompt_embeds");
    writer_.Bytes(extras.prompt_embeds[static_cast<size_t>(block)]);
  }
}

uint64_t EventInteger(const BlockHash& hash) {
  uint64_t value = 0;
  for (const uint8_t byte : hash.bytes().last(std::min<size_t>(hash.size(), 8))) value = value << 8 | byte;
  return value;
}

}  // namespace tenure::kv
