// A worker over a pool and host memory laid out as an engine's, for tests and benchmarks: every store group has its
// part of each block in two regions, and blocks are named by their bytes.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tenure/base/clock.h"
#include "tenure/engine/store_worker.h"

namespace tenure::engine {

// Hash k of the prompt `prompt`: its own for every pair.
kv::BlockHash TestHash(uint64_t prompt, int64_t k);
std::vector<kv::BlockHash> TestHashes(uint64_t prompt, int64_t first, int64_t end);

struct EngineRigOptions {
  kv::CacheConfig::Options config;
  int64_t num_blocks = 64;
  int64_t piece_bytes = 64;
  std::vector<int32_t> stripes = {};  // Empty: 1 for each group.
  int32_t shards = 1;                 // Of each group.
  int32_t tp_rank = 0;
  std::optional<Tokens> retention = Tokens(0);
  bool can_put = true;
  int load_threads = 1;
  absl::Duration load_deadline = absl::Seconds(5);
  bool events = false;
  Bytes batch_bytes{int64_t{64} << 20};
  Copier* copier = nullptr;  // Null: the host's.
};

class EngineRig {
 public:
  // `pool` and `clock` outlive it.
  EngineRig(EngineRigOptions options, store::Pool& pool, const Clock& clock);

  StoreWorker& worker() { return *worker_; }
  const kv::CacheConfig& config() const { return config_; }
  store::NamespaceId name_space(int group, int shard = 0) const {
    return namespaces_[static_cast<size_t>(group)][static_cast<size_t>(shard)];
  }
  store::ObjectKey Key(int group, const kv::BlockHash& hash, int shard = 0) const {
    return {name_space(group, shard), hash};
  }

  // Writes bytes that tell `seed` and the block to all of a block, in both regions.
  void Fill(BlockId block, uint64_t seed);
  // Whether Fill(as, seed) would have written what `block` holds of this group.
  bool Holds(int group, BlockId block, BlockId as, uint64_t seed) const;
  // Every byte of the memory, for comparing.
  std::vector<std::byte> Memory() const;

  // Waits until all is done, then takes the report.
  WorkerReport Settle();

 private:
  std::byte* At(int region, int group, int shard, BlockId block);

  EngineRigOptions options_;
  kv::CacheConfig config_;
  std::vector<std::vector<std::byte>> regions_;
  connector::GroupNamespaces namespaces_;
  std::unique_ptr<Copier> host_;
  std::unique_ptr<StoreWorker> worker_;
};

}  // namespace tenure::engine
