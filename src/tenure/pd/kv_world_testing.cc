#include "tenure/pd/kv_world_testing.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace tenure::pd {
namespace {

template <typename... Words>
uint8_t Digest(uint64_t first, Words... words) {
  uint64_t state = Random::Mix(first + 1);
  ((state = Random::Mix(state ^ (static_cast<uint64_t>(words) + 0x9E3779B97F4A7C15u))), ...);
  return static_cast<uint8_t>(state);
}

uint64_t NameDigest(const std::string& name) {
  uint64_t state = 1;
  for (const char c : name) state = Random::Mix(state ^ static_cast<uint64_t>(c));
  return state;
}

}  // namespace

KvWorker::KvWorker(const KvModel& model, const KvEngine& engine, int64_t tp_rank, int64_t pp_rank, uint64_t noise)
    : model_(model), engine_(engine), tp_rank_(tp_rank) {
  layout_.rank = {engine.tp_size, tp_rank, engine.pp_size, pp_rank};
  Random gaps(engine.style.gap_seed);
  std::vector<const KvTensor*> row;
  const int64_t count = std::ssize(model.tensors);
  for (int64_t i = 0; i < count; ++i) {
    const KvTensor& tensor = model.tensors[i];
    // Regions of one layer stay in one stage.
    if (tensor.layer_index * engine.pp_size / (model.tensors.back().layer_index + 1) != pp_rank) continue;
    if (engine.style.packed && tensor.state_bytes == 0) {
      row.push_back(&tensor);
    } else {
      AddAlone(tensor, gaps, noise);
    }
  }
  if (!row.empty()) AddRows(row, gaps, noise);
}

size_t KvWorker::AddStorage(int64_t bytes, uint64_t noise) {
  Storage& storage = storages_.emplace_back();
  storage.bytes.resize(static_cast<size_t>(bytes));
  for (size_t i = 0; i < storage.bytes.size(); ++i) storage.bytes[i] = Digest(noise, storages_.size(), i);
  storage.noise = storage.bytes;
  storage.written.resize(storage.bytes.size());
  return storages_.size() - 1;
}

void KvWorker::AddAlone(const KvTensor& tensor, Random& gaps, uint64_t noise) {
  const int64_t payload = PayloadOf(tensor);
  const int64_t stride = payload + gaps.Between(0, engine_.style.gap_bytes_max);
  const int64_t blocks = kLogicalBlocks * (tensor.state_bytes > 0 ? 1 : model_.physical);
  // The last block ends with its payload.
  AddRegion({&tensor, AddStorage((blocks - 1) * stride + payload, noise), 0, stride, payload, false});
}

void KvWorker::AddRows(std::vector<const KvTensor*> tensors, Random& gaps, uint64_t noise) {
  if (engine_.style.reversed) std::reverse(tensors.begin(), tensors.end());
  std::vector<Place> places;
  // What several groups share stands before what one has, and the groups' own tensors one over the other.
  std::vector<int64_t> end(model_.traits.groups.size());
  std::stable_partition(tensors.begin(), tensors.end(),
                        [](const KvTensor* tensor) { return tensor->groups.size() > 1; });
  for (const KvTensor* tensor : tensors) {
    int64_t offset = 0;
    for (const int64_t group : tensor->groups) offset = std::max(offset, end[group]);
    // Rows begin with a payload more often than not, as those of an engine do.
    if (offset > 0 || gaps.Chance(0.2)) offset += gaps.Between(0, engine_.style.gap_bytes_max);
    const int64_t payload = PayloadOf(*tensor);
    for (const int64_t group : tensor->groups) end[group] = offset + payload;
    places.push_back({tensor, 0, offset, 0, payload, true});
  }
  const int64_t stride = *std::max_element(end.begin(), end.end()) + gaps.Between(0, engine_.style.gap_bytes_max) +
                         engine_.style.row_tail_bytes_min;
  const size_t storage = AddStorage(kLogicalBlocks * model_.physical * stride, noise);
  for (Place& place : places) {
    place.storage = storage;
    place.stride = stride;
    AddRegion(place);
  }
}

void KvWorker::AddRegion(const Place& place) {
  places_.push_back(place);
  KvRegion& region = layout_.regions.emplace_back();
  region.layer_name = place.tensor->layer_name;
  region.layer_index = place.tensor->layer_index;
  const bool shared = place.tensor->groups.size() > 1;
  region.group_index = shared ? kSharedGroup : place.tensor->groups[0];
  if (shared) region.shared_group_ids = place.tensor->groups;
  // Found again by address: the storages' bytes never move.
  region.base_addr =
      reinterpret_cast<uint64_t>(storages_[place.storage].bytes.data()) + static_cast<uint64_t>(place.offset);
  region.block_bytes = place.stride;
  region.kv_bytes = place.payload;
  region.row_offset = place.in_row && engine_.style.tells_rows ? place.offset : kNoRow;
  region.num_blocks = kLogicalBlocks * (place.tensor->state_bytes > 0 ? 1 : model_.physical);
}

int64_t KvWorker::HeadsHeld() const {
  if (model_.traits.is_mla) return 1;
  return std::max<int64_t>(model_.traits.total_kv_heads / engine_.tp_size, 1);
}

int64_t KvWorker::HeadAt(int64_t place) const {
  if (model_.traits.is_mla) return 0;
  const int64_t heads = model_.traits.total_kv_heads;
  return engine_.tp_size <= heads ? tp_rank_ * HeadsHeld() + place : tp_rank_ / (engine_.tp_size / heads);
}

int64_t KvWorker::PayloadOf(const KvTensor& tensor) const {
  return tensor.state_bytes > 0 ? tensor.state_bytes : HeadsHeld() * model_.tokens * model_.token_bytes;
}

uint8_t KvWorker::ByteOf(const Block& block, int64_t index) const {
  const uint64_t tensor = NameDigest(block.place.tensor->layer_name) + static_cast<uint64_t>(block.group);
  if (block.place.tensor->state_bytes > 0) return Digest(tensor, block.request, block.first_token, tp_rank_, index);
  const int64_t token = block.first_token + index / model_.token_bytes % model_.tokens;
  const int64_t head = HeadAt(index / model_.token_bytes / model_.tokens);
  return Digest(tensor, block.request, token, head, index % model_.token_bytes);
}

void KvWorker::ForEachBlock(const KvRequest& request, const std::function<void(const Block&)>& visit) const {
  for (const Place& place : places_) {
    const bool state = place.tensor->state_bytes > 0;
    const int64_t physical = state ? 1 : model_.physical;
    for (const int64_t group : place.tensor->groups) {
      int64_t from_end = 0;
      const std::vector<int64_t>& ids = request.blocks[group];
      for (auto id = ids.rbegin(); id != ids.rend(); ++id) {
        if (state && *id == kNullBlock) continue;
        ++from_end;
        for (int64_t i = 0; i < physical; ++i) {
          const int64_t first_token = (i - from_end * physical) * model_.tokens;
          visit({place, (*id * physical + i) * place.stride, group, request.id, first_token});
        }
      }
    }
  }
}

void KvWorker::Prefill(const KvRequest& request) {
  ForEachBlock(request, [&](const Block& block) {
    uint8_t* payload = storages_[block.place.storage].bytes.data() + block.row + block.place.offset;
    for (int64_t i = 0; i < block.place.payload; ++i) payload[i] = ByteOf(block, i);
  });
}

int64_t KvWorker::Find(uint64_t address, uint64_t size) const {
  for (size_t i = 0; i < storages_.size(); ++i) {
    const uint64_t begin = reinterpret_cast<uint64_t>(storages_[i].bytes.data());
    const uint64_t bytes = storages_[i].bytes.size();
    if (address >= begin && address - begin <= bytes && size <= bytes - (address - begin))
      return static_cast<int64_t>(i);
  }
  return -1;
}

bool KvWorker::Write(const uint8_t* from, uint64_t to, uint64_t size) {
  const int64_t found = Find(to, size);
  if (found < 0) return false;
  Storage& storage = storages_[found];
  const int64_t begin = static_cast<int64_t>(to - reinterpret_cast<uint64_t>(storage.bytes.data()));
  const auto first = storage.written.begin() + begin;
  const auto end = first + static_cast<int64_t>(size);
  if (std::find(first, end, true) != end) return false;
  std::fill(first, end, true);
  std::memcpy(storage.bytes.data() + begin, from, size);
  return true;
}

std::string KvWorker::Difference(const std::vector<KvRequest>& requests) const {
  std::vector<std::vector<uint8_t>> expected;
  std::vector<std::vector<bool>> is_padding;
  for (const Storage& storage : storages_) {
    expected.push_back(storage.noise);
    is_padding.emplace_back(storage.noise.size());
  }
  for (const KvRequest& request : requests) {
    ForEachBlock(request, [&](const Block& block) {
      if (!block.place.in_row) return;
      const auto row = is_padding[block.place.storage].begin() + block.row;
      std::fill(row, row + block.place.stride, true);
    });
  }
  for (const KvRequest& request : requests) {
    ForEachBlock(request, [&](const Block& block) {
      for (int64_t i = 0; i < block.place.payload; ++i) {
        const int64_t at = block.row + block.place.offset + i;
        expected[block.place.storage][at] = ByteOf(block, i);
        is_padding[block.place.storage][at] = false;
      }
    });
  }
  for (size_t i = 0; i < storages_.size(); ++i) {
    for (size_t at = 0; at < expected[i].size(); ++at) {
      if (is_padding[i][at] || storages_[i].bytes[at] == expected[i][at]) continue;
      return fmt::format("tp rank {} pp rank {}: storage {} byte {} is {}, not {}", tp_rank_, layout_.rank.pp_rank, i,
                         at, storages_[i].bytes[at], expected[i][at]);
    }
  }
  return "";
}

}  // namespace tenure::pd
