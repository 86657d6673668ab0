// Puts blocks of the engine's memory into a pool and gets them back, in batches of bounded size; through staging memory
// where the pool cannot reach the engine's. One thread.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tenure/engine/worker_context.h"
#include "tenure/kv/object_key.h"

namespace tenure::engine {

// One object and the block that it fills or is made from. The group, shard and block are checked by whoever made it.
struct BlockObject {
  kv::ObjectKey key;
  kv::GroupIndex group;
  int32_t shard = 0;
  BlockId block = kNullBlock;
  std::optional<kv::ObjectKey> parent = std::nullopt;  // For Put on closed pools.
};

class BlockIo {
 public:
  static constexpr size_t kBatchObjectsMax = 4096;

  // Opens a lane of the context's copier.
  static absl::StatusOr<std::unique_ptr<BlockIo>> Create(const WorkerContext& context);

  // Whether `next` may join a batch of so many objects and bytes; the first one always may.
  bool Fits(size_t objects, Bytes bytes, const BlockObject& next) const;
  // Objects [begin, end) go into one call together; end > begin. Precondition: begin < objects.size().
  size_t BatchEnd(std::span<const BlockObject> objects, size_t begin) const;
  Bytes BytesOf(const BlockObject& object) const { return context_.memory.object_bytes(object.group, object.shard); }
  Bytes BytesOf(std::span<const BlockObject> objects) const;

  // One batch. An error: nothing is known of any object.
  absl::Status Put(std::span<const BlockObject> batch, std::span<store::PutAnswer> answers);
  // One batch. An error: no object counts as loaded. kPresent: its bytes are in the block. Nothing is written to a
  // block after this has returned. Aborted: the device did not take the bytes.
  absl::Status Get(std::span<const BlockObject> batch, std::span<store::KeyAnswer> answers);

 private:
  BlockIo(const WorkerContext& context, std::unique_ptr<CopyLane> lane) : context_(context), lane_(std::move(lane)) {}
  bool direct() const { return lane_->staging().empty(); }
  void ListSegments(std::span<const BlockObject> batch);
  std::span<const store::Segment> SegmentsOf(size_t object) const;
  // The part of the staging memory that is the object's, as one segment.
  void ListStaging(std::span<const BlockObject> batch);

  const WorkerContext& context_;
  std::unique_ptr<CopyLane> lane_;
  // Scratch, kept for its capacity.
  std::vector<store::Segment> segments_;  // In the engine's memory.
  std::vector<size_t> ends_;              // Where object i's segments end.
  std::vector<store::Segment> staging_;   // One an object, unless direct.
  std::vector<store::ConstSegment> sources_;
  std::vector<store::PutObject> puts_;
  std::vector<store::GetObject> gets_;
};

}  // namespace tenure::engine
