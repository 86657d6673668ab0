#include "tenure/pd/world_memory_testing.h"

#include <fmt/format.h>

#include "tenure/base/check.h"
#include "tenure/base/random.h"
#include "tenure/pd/tiny_model_testing.h"

namespace tenure::pd {
namespace {

constexpr uint64_t kFreeWord = 0xF4EEF4EEF4EEF4EE;
constexpr uint64_t kNewWord = 0xA110CA7EDA110CA7;

WorkerRank RankOf(int64_t tp_size, int64_t tp_rank) { return {tp_size, tp_rank, 1, 0}; }

uint64_t WordOf(uint64_t transfer, int64_t layer, int64_t place, int64_t head) {
  const int64_t index = (layer * 1024 + place) * kTinyHeads + head;
  return Random::Mix(transfer * 1'000'003 + static_cast<uint64_t>(index));
}

}  // namespace

WorldMemory::WorldMemory(int64_t tp_size, int64_t num_blocks)
    : tp_size_(tp_size), num_blocks_(num_blocks), uses_(static_cast<size_t>(num_blocks)) {
  const auto words = static_cast<size_t>(TinyBytes(RankOf(tp_size, 0), num_blocks)) / sizeof(uint64_t);
  words_.assign(static_cast<size_t>(tp_size), std::vector<uint64_t>(words, kFreeWord));
  for (int64_t block = num_blocks - 1; block > 0; --block) free_.push_back(block);
}

KvLayout WorldMemory::Layout(int64_t tp_rank) const {
  const auto base = reinterpret_cast<uintptr_t>(words_[static_cast<size_t>(tp_rank)].data());
  return TinyLayout(RankOf(tp_size_, tp_rank), base, num_blocks_);
}

// Visits the addresses of all words of the blocks with layer, index in `blocks` and head.
template <typename Visit>
void WorldMemory::ForEachWord(const Blocks& blocks, Visit visit) const {
  const int64_t heads = kTinyHeads / tp_size_;
  for (int64_t rank = 0; rank < tp_size_; ++rank) {
    for (int64_t layer = 0; layer < kTinyLayers; ++layer) {
      for (size_t i = 0; i < blocks.size(); ++i) {
        for (int64_t head = 0; head < heads; ++head) {
          const auto word = static_cast<size_t>((layer * num_blocks_ + blocks[i]) * heads + head);
          visit(static_cast<size_t>(rank), word, layer, static_cast<int64_t>(i), rank * heads + head);
        }
      }
    }
  }
}

std::optional<WorldMemory::Blocks> WorldMemory::Allocate(int64_t count) {
  if (free_.size() < static_cast<size_t>(count)) return std::nullopt;
  Blocks blocks(free_.end() - count, free_.end());
  free_.resize(free_.size() - static_cast<size_t>(count));
  ForEachWord(blocks, [&](size_t rank, size_t word, int64_t, int64_t, int64_t) {
    if (words_[rank][word] != kFreeWord) SetProblem("something was written into a free block");
    words_[rank][word] = kNewWord;
  });
  return blocks;
}

void WorldMemory::Free(const Blocks& blocks) {
  for (const int64_t block : blocks) {
    if (uses_[static_cast<size_t>(block)] != 0) SetProblem(fmt::format("block {} is freed while a write runs", block));
    free_.push_back(block);
  }
  ForEachWord(blocks, [&](size_t rank, size_t word, int64_t, int64_t, int64_t) { words_[rank][word] = kFreeWord; });
}

void WorldMemory::Fill(const Blocks& blocks, uint64_t transfer, int64_t first) {
  ForEachWord(blocks, [&](size_t rank, size_t word, int64_t layer, int64_t place, int64_t head) {
    words_[rank][word] = WordOf(transfer, layer, first + place, head);
  });
}

bool WorldMemory::Holds(const Blocks& blocks, uint64_t transfer, int64_t first) const {
  bool holds = true;
  ForEachWord(blocks, [&](size_t rank, size_t word, int64_t layer, int64_t place, int64_t head) {
    holds = holds && words_[rank][word] == WordOf(transfer, layer, first + place, head);
  });
  return holds;
}

size_t WorldMemory::BlockAt(uint64_t address) const {
  for (const std::vector<uint64_t>& words : words_) {
    const auto base = reinterpret_cast<uintptr_t>(words.data());
    if (address < base || address >= base + words.size() * sizeof(uint64_t)) continue;
    return (address - base) / sizeof(uint64_t) / static_cast<size_t>(kTinyHeads / tp_size_) %
           static_cast<size_t>(num_blocks_);
  }
  const bool address_is_in_this_memory = false;
  TENURE_CHECK(address_is_in_this_memory);
  return 0;
}

void WorldMemory::AddUses(uint64_t address, uint64_t size, int count) {
  const uint64_t block_bytes = static_cast<uint64_t>(kTinyHeads / tp_size_ * kTinyHeadBytes);
  // A piece may be some heads of one block or a run of whole ones.
  for (uint64_t at = 0; at < size; at += block_bytes) uses_[BlockAt(address + at)] += count;
}

}  // namespace tenure::pd
