#include "tenure/engine/engine_rig_testing.h"

#include <array>
#include <cstring>
#include <utility>

#include "tenure/base/check.h"
#include "tenure/base/random.h"
#include "tenure/base/status.h"

namespace tenure::engine {
namespace {

constexpr int kRegions = 2;

std::byte ByteOf(uint64_t seed, BlockId block, int region, int64_t at) {
  const auto mixed = Random::Mix(seed * 1'000'003 + static_cast<uint64_t>(block) * 8191 +
                                 static_cast<uint64_t>(region) * 131'071 + static_cast<uint64_t>(at));
  return static_cast<std::byte>(mixed & 0xFF);
}

}  // namespace

kv::BlockHash TestHash(uint64_t prompt, int64_t k) {
  std::array<uint8_t, 32> bytes{};
  for (size_t word = 0; word < 4; ++word) {
    const uint64_t value = Random::Mix(prompt * 1'000'000'007 + static_cast<uint64_t>(k) * 4 + word + 1);
    std::memcpy(bytes.data() + word * 8, &value, 8);
  }
  return kv::BlockHash::FromTrusted(bytes);
}

std::vector<kv::BlockHash> TestHashes(uint64_t prompt, int64_t first, int64_t end) {
  std::vector<kv::BlockHash> hashes;
  for (int64_t k = first; k < end; ++k) hashes.push_back(TestHash(prompt, k));
  return hashes;
}

EngineRig::EngineRig(EngineRigOptions options, store::Pool& pool, const Clock& clock)
    : options_(std::move(options)), config_(kv::CacheConfig::Create(options_.config).value()), host_(MakeHostCopier()) {
  const auto groups = static_cast<int>(config_.groups().size());
  const int64_t stride = options_.piece_bytes * options_.shards * groups;
  BlockMemory::Options memory;
  memory.num_blocks = options_.num_blocks;
  for (int region = 0; region < kRegions; ++region) {
    regions_.emplace_back(static_cast<size_t>(stride * options_.num_blocks));
    memory.regions.push_back({regions_.back().data(), stride * options_.num_blocks});
  }
  for (int group = 0; group < groups; ++group) {
    auto& shards = memory.groups.emplace_back();
    auto& names = namespaces_.emplace_back();
    for (int shard = 0; shard < options_.shards; ++shard) {
      names.push_back(pool.OpenNamespace(fmt::format("m@tp_rank:{}@group:{}@", shard, group)).value());
      auto& pieces = shards.emplace_back();
      for (int region = 0; region < kRegions; ++region) {
        pieces.push_back({At(region, group, shard, 0), stride, options_.piece_bytes});
      }
    }
  }
  StoreWorkerOptions made{.config = config_, .namespaces = namespaces_};
  made.tp_rank = options_.tp_rank;
  made.stripes = options_.stripes;
  if (made.stripes.empty()) made.stripes.assign(static_cast<size_t>(groups), 1);
  made.retention = options_.retention;
  made.can_put = options_.can_put;
  made.load_threads = options_.load_threads;
  made.load_deadline = options_.load_deadline;
  made.events = options_.events;
  made.batch_bytes = options_.batch_bytes;
  Copier& copier = options_.copier != nullptr ? *options_.copier : *host_;
  worker_ =
      StoreWorker::Create(std::move(made), BlockMemory::Create(std::move(memory)).value(), pool, copier, clock).value();
}

std::byte* EngineRig::At(int region, int group, int shard, BlockId block) {
  const auto groups = static_cast<int64_t>(config_.groups().size());
  const int64_t place = (block * groups + group) * options_.shards + shard;
  return regions_[static_cast<size_t>(region)].data() + place * options_.piece_bytes;
}

void EngineRig::Fill(BlockId block, uint64_t seed) {
  const int64_t bytes = options_.piece_bytes * options_.shards * static_cast<int64_t>(config_.groups().size());
  for (int region = 0; region < kRegions; ++region) {
    std::byte* first = At(region, 0, 0, block);
    for (int64_t at = 0; at < bytes; ++at) first[at] = ByteOf(seed, block, region, at);
  }
}

bool EngineRig::Holds(int group, BlockId block, BlockId as, uint64_t seed) const {
  const auto groups = static_cast<int64_t>(config_.groups().size());
  const int64_t bytes = options_.piece_bytes * options_.shards;
  for (int region = 0; region < kRegions; ++region) {
    const std::byte* first = regions_[static_cast<size_t>(region)].data() + (block * groups + group) * bytes;
    for (int64_t at = 0; at < bytes; ++at) {
      if (first[at] != ByteOf(seed, as, region, group * bytes + at)) return false;
    }
  }
  return true;
}

std::vector<std::byte> EngineRig::Memory() const {
  std::vector<std::byte> all;
  for (const auto& region : regions_) all.insert(all.end(), region.begin(), region.end());
  return all;
}

WorkerReport EngineRig::Settle() {
  TENURE_CHECK(worker_->Drain(absl::Hours(1)));
  return worker_->TakeReport();
}

}  // namespace tenure::engine
