// Copying an object and taking its digest in the same pass (contract rule 5).
//
// The digest is 64-bit XXH3 of the bytes, seeded from the whole key, so that bytes under another key do not verify. The
// putting side computes it, the reader again. Nobody may write the source during the call: whoever copies holds a
// reservation or a pin. Pure functions, safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "tenure/kv/block_hash.h"
#include "tenure/store/pool.h"

namespace tenure::store {

// `namespace_hash`: XXH3 of the namespace's text, so that seeds agree between processes that number namespaces
// differently.
uint64_t DigestSeed(uint64_t namespace_hash, const kv::BlockHash& hash);

uint64_t Digest(uint64_t seed, std::span<const std::byte> bytes);

// Copies the segments, one after the other, to `destination`; returns their digest. The copy is visible to other
// processes before anything that the thread stores or sends afterwards.
uint64_t GatherWithDigest(uint64_t seed, std::span<const ConstSegment> from, std::byte* destination);

// Copies from `source` into the segments, one after the other; returns the digest of what was read.
uint64_t ScatterWithDigest(uint64_t seed, const std::byte* source, std::span<const Segment> to);

}  // namespace tenure::store
