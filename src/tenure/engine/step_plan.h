// What the scheduler tells every worker of an engine in one step: which KV to load, which to save, whose state to drop.
//
// A plan is a value; it crosses processes as bytes inside vLLM's connector metadata. Groups are store groups (the
// prefix-cacheable ones, renumbered from 0) and block ids are the engine's, 0 being its null block. All workers get the
// same plan; each derives its own keys and its share of the puts. Source: store_connector spec §5, §6.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "tenure/base/units.h"
#include "tenure/kv/block_hash.h"
#include "tenure/kv/group_spec.h"

namespace tenure::engine {

using BlockId = int32_t;
inline constexpr BlockId kNullBlock = 0;
// Requests with longer ids are never loaded or saved.
inline constexpr size_t kRequestIdBytesMax = 4096;

// One chunk of a group that a load reads: the object `hash` fills block `block`.
struct LoadChunk {
  kv::GroupIndex group;
  BlockId block = kNullBlock;
  kv::BlockHash hash;
  friend bool operator==(const LoadChunk&, const LoadChunk&) = default;
};

struct LoadOrder {
  std::string request;
  Tokens local;   // Computed by the engine before the load; chunks below it are not listed.
  Tokens length;  // The hit.
  std::vector<LoadChunk> chunks;
  // Nothing is read and the load is reported as failed, with every block of `chunks`: the engine waits for an end.
  bool refused = false;
  friend bool operator==(const LoadOrder&, const LoadOrder&) = default;
};

// One block that is stored at an exact token count: a recurrent state, or a chunk of a partial tail.
struct BoundaryPut {
  kv::GroupIndex group;
  BlockId block = kNullBlock;
  Tokens tokens;  // The object is keyed by the hash that ends here; a multiple of the hash block size.
  friend bool operator==(const BoundaryPut&, const BoundaryPut&) = default;
};

// Tokens [start, start + ids.size()) of a request, for KV events only.
struct TokenWindow {
  Tokens start;
  std::vector<int32_t> ids;
  friend bool operator==(const TokenWindow&, const TokenWindow&) = default;
};

struct SaveOrder {
  uint64_t job = 0;  // Never reused. Its blocks stay pinned in the engine until every worker has reported it.
  std::string request;
  Tokens length;       // Save whole scheduler blocks up to here; 0: only the boundary puts.
  Tokens prefill_end;  // Replay boundaries come from it.
  // Hashes [first_hash, first_hash + hashes.size()) of the request, which extend those of its earlier orders.
  int64_t first_hash = 0;
  std::vector<kv::BlockHash> hashes;
  std::vector<std::vector<BlockId>> blocks;  // The current block table, one a group, by chunk.
  std::vector<BoundaryPut> boundary_puts;
  TokenWindow tokens;
  friend bool operator==(const SaveOrder&, const SaveOrder&) = default;
};

struct StepPlan {
  std::vector<LoadOrder> loads;
  std::vector<SaveOrder> saves;
  std::vector<std::string> preempted;  // Their saves begin anew with the next order.
  std::vector<std::string> finished;   // Their state goes when their last job is done.
  bool empty() const { return loads.empty() && saves.empty() && preempted.empty() && finished.empty(); }
  friend bool operator==(const StepPlan&, const StepPlan&) = default;
};

// Precondition: every request id has at most kRequestIdBytesMax bytes, every hash 16 or 32.
std::string EncodeStepPlan(const StepPlan& plan);
// InvalidArgument for anything that EncodeStepPlan does not write. Allocates in proportion to `bytes` only.
absl::StatusOr<StepPlan> DecodeStepPlan(std::string_view bytes);

}  // namespace tenure::engine
