// A model's KV in real bytes on the workers of a prefill and of a decode engine: tensors, groups, heads, ranks and ways
// to lay them out, and what each byte has to be. For tests only.
//
// What a byte says follows from the tensor, the request's token and the head alone, on both sides; no formula of the
// write plan is used. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tenure/base/random.h"
#include "tenure/pd/kv_layout.h"

namespace tenure::pd {

// A region on every worker that has its stage.
struct KvTensor {
  std::string layer_name;
  int64_t layer_index = 0;
  std::vector<int64_t> groups;  // Several share the memory.
  int64_t state_bytes = 0;      // Above 0: a recurrent state.
};

struct KvModel {
  KvTraits traits;
  int64_t tokens = 1;       // Of a kernel block.
  int64_t token_bytes = 1;  // Of a token and head.
  int64_t physical = 1;     // Kernel blocks of a logical one.
  std::vector<KvTensor> tensors;
};

// How an engine's workers lay out what is no state.
struct KvStyle {
  bool packed = false;        // Rows of one storage, the groups one over the other; else a storage for each tensor.
  bool tells_rows = true;     // Row offsets are in the layout.
  bool reversed = false;      // The order of the tensors in a row.
  int64_t gap_bytes_max = 0;  // Padding before and behind each payload.
  uint64_t gap_seed = 0;      // Equal seeds, equal padding.
  int64_t row_tail_bytes_min = 0;
};

struct KvEngine {
  int64_t tp_size = 1;
  int64_t pp_size = 1;
  KvStyle style;
};

// One request's block ids by group, the end of its sequence: the last ids of both sides are the same block.
struct KvRequest {
  uint64_t id = 0;
  std::vector<std::vector<int64_t>> blocks;
};

class KvWorker {
 public:
  static constexpr int64_t kLogicalBlocks = 64;

  // The memory holds noise made from `noise`. `model` is borrowed.
  KvWorker(const KvModel& model, const KvEngine& engine, int64_t tp_rank, int64_t pp_rank, uint64_t noise);

  const KvLayout& layout() const { return layout_; }
  // Gives the request's blocks their content.
  void Prefill(const KvRequest& request);
  // Carries out a write into this memory. False, and no write: not within one storage, or a byte is written again.
  bool Write(const uint8_t* from, uint64_t to, uint64_t size);
  bool Holds(uint64_t address, uint64_t size) const { return Find(address, size) >= 0; }
  // Empty when the blocks of `requests` have their content and nothing else has changed, except for the padding in the
  // rows of these blocks; else the first difference.
  std::string Difference(const std::vector<KvRequest>& requests) const;

 private:
  struct Storage {
    std::vector<uint8_t> bytes;
    std::vector<uint8_t> noise;
    std::vector<bool> written;
  };
  struct Place {
    const KvTensor* tensor;
    size_t storage;
    int64_t offset;  // Of block 0's payload.
    int64_t stride;
    int64_t payload;
    bool in_row;
  };
  // A kernel block of a request in one place.
  struct Block {
    const Place& place;
    int64_t row;  // In the storage; its payload is `offset` behind.
    int64_t group;
    uint64_t request;
    int64_t first_token;  // From the sequence's end, of a whole number of logical blocks.
  };

  size_t AddStorage(int64_t bytes, uint64_t noise);
  void AddAlone(const KvTensor& tensor, Random& gaps, uint64_t noise);
  void AddRows(std::vector<const KvTensor*> tensors, Random& gaps, uint64_t noise);
  void AddRegion(const Place& place);
  int64_t PayloadOf(const KvTensor& tensor) const;
  int64_t HeadsHeld() const;
  int64_t HeadAt(int64_t place) const;
  uint8_t ByteOf(const Block& block, int64_t index) const;
  void ForEachBlock(const KvRequest& request, const std::function<void(const Block&)>& visit) const;
  int64_t Find(uint64_t address, uint64_t size) const;

  const KvModel& model_;
  KvEngine engine_;
  int64_t tp_rank_;
  KvLayout layout_;
  std::vector<Place> places_;
  std::vector<Storage> storages_;
};

}  // namespace tenure::pd
