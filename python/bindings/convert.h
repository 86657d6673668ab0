// Values that cross the border in more than one file: block hashes, keys' ranks, masks.
#pragma once

#include <nanobind/nanobind.h>

#include <span>
#include <string_view>
#include <vector>

#include "bindings/errors.h"
#include "tenure/kv/block_hash.h"
#include "tenure/kv/chunk_mask.h"

namespace tenure::python {

inline nanobind::bytes ToPython(const kv::BlockHash& hash) {
  return nanobind::bytes(hash.bytes().data(), hash.bytes().size());
}

// ValueError, naming `what`, unless it has 16 or 32 bytes.
inline kv::BlockHash HashFrom(std::string_view what, const nanobind::bytes& bytes) {
  const auto* data = static_cast<const uint8_t*>(bytes.data());
  return ValueOrThrow(kv::BlockHash::FromBytes(what, std::span(data, bytes.size())));
}

// None: every chunk.
inline nanobind::object ToPython(const kv::ChunkMask& mask) {
  if (mask.is_all()) return nanobind::none();
  nanobind::list bits;
  for (int64_t i = 0; i < mask.size(); ++i) bits.append(mask[i]);
  return bits;
}

inline nanobind::list ToPython(const std::vector<kv::ChunkMask>& masks) {
  nanobind::list list;
  for (const kv::ChunkMask& mask : masks) list.append(ToPython(mask));
  return list;
}

}  // namespace tenure::python
