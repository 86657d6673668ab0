// One put or get of Mooncake's, step by step, and what its codes mean.
//
// Values that own all that their calls touch, so that a step may outlast its caller; whoever runs the steps says on
// which thread and for how long. Steps come in order, one at a time. Source: mooncake_store spec §1.6, §3.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "bindings/mooncake_client.h"
#include "bindings/mooncake_keys.h"
#include "tenure/base/status.h"
#include "tenure/store/pool.h"

namespace tenure::python {

// Bytes of an object; InvalidArgument for none, more than 2^62, or a segment without an address.
template <typename Segments>
absl::StatusOr<size_t> SizeOf(const Segments& segments) {
  size_t size = 0;
  for (const auto& segment : segments) {
    if (segment.data == nullptr && segment.size > 0) return InvalidArgument("a segment has no address; give one");
    if (__builtin_add_overflow(size, segment.size, &size) || size > (uint64_t{1} << 62)) {
      return InvalidArgument("segments add up to more than 2^62 bytes; give the object's size");
    }
  }
  if (size == 0) return InvalidArgument("segments add up to 0 bytes; an object has at least 1");
  return size;
}

template <typename Object>
absl::StatusOr<std::vector<size_t>> SizesOf(std::span<const Object> objects) {
  std::vector<size_t> sizes;
  for (const Object& object : objects) {
    TENURE_ASSIGN_OR_RETURN(const size_t size, SizeOf(object.segments));
    sizes.push_back(size);
  }
  return sizes;
}

// A batch whose answers go into a span of so many.
absl::Status CheckBatch(size_t keys, size_t answers);

// What a put and a get share. `memory` is what the pieces lie in, where that is not the caller's to keep.
struct MooncakeBatch {
  std::shared_ptr<MooncakeClient> client;
  MooncakeKeys keys;
  MooncakePieces pieces;
  std::shared_ptr<const void> memory = nullptr;
};

// A transfer that Mooncake gives up, 30 to 60 s after it began, may still be under way when its call has ended: its log
// tells of batches that are "still busy", and they move bytes when the peer comes back.
inline bool MayGoOn(std::span<const int64_t> codes, absl::Duration took, absl::Duration given_up_after) {
  return took >= given_up_after && std::ranges::count(codes, mooncake_code::kTransferFailed) > 0;
}

// Mooncake answers 0 for a put that met an object or another writer, so what is there is asked before and after.
class MooncakePut {
 public:
  explicit MooncakePut(MooncakeBatch batch)
      : batch_(std::move(batch)), answers_(batch_.keys.size(), store::PutAnswer::kNotStored) {}

  // Asks which keys are there; those are not put.
  absl::Status AskBefore();
  // False: the answers are known already.
  bool has_work() const { return !put_.empty(); }
  // The one step that reads the pieces.
  absl::Status Copy();
  absl::Status AskAfter();
  // All steps.
  absl::Status Run();

  // One a key.
  const std::vector<store::PutAnswer>& answers() const { return answers_; }
  // Of the keys that were put.
  std::span<const int64_t> codes() const { return codes_; }
  const MooncakeBatch& batch() const { return batch_; }

 private:
  const MooncakeBatch batch_;
  std::vector<store::PutAnswer> answers_;
  std::vector<size_t> put_;  // The keys of the batch that are put, each text once.
  MooncakeKeys put_keys_;
  std::map<MooncakeKey, size_t> first_of_;
  std::vector<int64_t> codes_;
};

class MooncakeGet {
 public:
  explicit MooncakeGet(MooncakeBatch batch) : batch_(std::move(batch)) {}

  // The one step that writes the pieces; of an object that is not whole too.
  absl::Status Copy();
  // Asks for the sizes of objects whose copy failed: a piece longer than its object fails as a transfer does. Only
  // where there are such.
  bool has_questions() const { return std::ranges::count(codes_, mooncake_code::kTransferFailed) > 0; }
  absl::Status AskAfter();
  // All steps.
  absl::Status Run();

  store::KeyAnswer AnswerOf(size_t key) const;
  std::span<const int64_t> codes() const { return codes_; }
  const MooncakeBatch& batch() const { return batch_; }

 private:
  const MooncakeBatch batch_;
  std::vector<int64_t> codes_;
};

}  // namespace tenure::python
