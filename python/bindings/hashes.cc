// Chains of block hashes, as vLLM computes them with its language-independent algorithms.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <string>
#include <tuple>

#include "bindings/bind.h"
#include "bindings/convert.h"
#include "bindings/errors.h"
#include "tenure/base/status.h"
#include "tenure/kv/hash_chain.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace tenure::python {
namespace {

using Items = std::vector<std::tuple<std::string, int64_t, int64_t>>;

void InitChain(kv::HashChain* self, const std::string& algorithm, int64_t hash_block_size, const nb::bytes& none_hash,
               const std::optional<std::tuple<std::string, std::string>>& lora, const Items& items,
               const std::string& cache_salt, const std::vector<nb::bytes>& prompt_embeds) {
  kv::HashChain::Options options;
  options.algorithm = ValueOrThrow(kv::ParseHashAlgorithm("algorithm", algorithm));
  options.hash_block_size = TokensFrom("hash_block_size", hash_block_size, 1);
  options.none_hash = HashFrom("none_hash", none_hash);
  if (lora) options.extras.lora = kv::HashExtras::Lora{std::get<0>(*lora), std::get<1>(*lora)};
  for (const auto& [identifier, offset, length] : items) {
    options.extras.items.push_back(
        {identifier, TokensFrom("items[].offset", offset), TokensFrom("items[].length", length, 1)});
  }
  options.extras.cache_salt = cache_salt;
  for (const nb::bytes& digest : prompt_embeds) {
    std::array<uint8_t, 32> copy{};
    if (digest.size() != copy.size()) {
      Throw(InvalidArgument("prompt_embeds[] has {} bytes; use SHA-256 digests of 32", digest.size()));
    }
    std::copy_n(static_cast<const uint8_t*>(digest.data()), copy.size(), copy.begin());
    options.extras.prompt_embeds.push_back(copy);
  }
  new (self) kv::HashChain(ValueOrThrow(kv::HashChain::Create(std::move(options))));
}

nb::list Hashes(const kv::HashChain& self) {
  nb::list hashes;
  for (const kv::BlockHash& hash : self.hashes()) hashes.append(ToPython(hash));
  return hashes;
}

}  // namespace

void BindHashes(nb::module_& module) {
  module.def(
      "none_hash",
      [](const std::string& algorithm, const std::optional<std::string>& seed) {
        const kv::HashAlgorithm parsed = ValueOrThrow(kv::ParseHashAlgorithm("algorithm", algorithm));
        return ToPython(ValueOrThrow(kv::NoneHash(parsed, seed)));
      },
      "algorithm"_a, "seed"_a.none() = nb::none(),
      "The parent of every first block. seed: the text of PYTHONHASHSEED, None when it is not set; xxhash_cbor needs "
      "one\n"
      "(tenure.Error), since without it no two processes share a block.");
  nb::class_<kv::HashChain>(
      module, "HashChain",
      "The block hashes of a growing prompt: tokens in, one hash out for each full block. One thread at a time.\n\n"
      "algorithm: 'sha256_cbor' (32 bytes) or 'xxhash_cbor' (16). hash_block_size: tokens. none_hash: from "
      "none_hash().\n"
      "lora: (name, path). items: multimodal (identifier, offset, length) in tokens, ascending by offset. cache_salt: "
      "tells\n"
      "tenants apart. prompt_embeds: one SHA-256 digest a block. ValueError names the argument.")
      .def("__init__", &InitChain, "algorithm"_a, "hash_block_size"_a, "none_hash"_a, nb::kw_only(),
           "lora"_a.none() = nb::none(), "items"_a = Items(), "cache_salt"_a = "",
           "prompt_embeds"_a = std::vector<nb::bytes>())
      .def(
          "append", [](kv::HashChain& self, const std::vector<int64_t>& tokens) { self.Append(tokens); }, "tokens"_a,
          "Adds token ids after those before. A last block that is not full waits until it is.")
      .def_prop_ro("hashes", &Hashes, "A new list with the hash of each full block, as bytes.")
      .def("__len__", [](const kv::HashChain& self) { return self.hashes().size(); });
  module.def(
      "event_integer", [](const nb::bytes& hash) { return kv::EventInteger(HashFrom("hash", hash)); }, "hash"_a,
      "How KV events name a block: its last eight bytes, big-endian.");
}

}  // namespace tenure::python
