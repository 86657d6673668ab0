#include "tenure/engine/block_io.h"

#include <utility>

#include "tenure/base/status.h"
#include "tenure/connector/save_plan.h"

namespace tenure::engine {

absl::StatusOr<std::unique_ptr<BlockIo>> BlockIo::Create(const WorkerContext& context) {
  TENURE_ASSIGN_OR_RETURN(std::unique_ptr<CopyLane> lane, context.copier.OpenLane(context.batch_bytes));
  return std::unique_ptr<BlockIo>(new BlockIo(context, std::move(lane)));
}

bool BlockIo::Fits(size_t objects, Bytes bytes, const BlockObject& next) const {
  return objects == 0 || (objects < kBatchObjectsMax && bytes + BytesOf(next) <= context_.batch_bytes);
}

size_t BlockIo::BatchEnd(std::span<const BlockObject> objects, size_t begin) const {
  Bytes bytes;
  size_t end = begin;
  while (end < objects.size() && Fits(end - begin, bytes, objects[end])) bytes += BytesOf(objects[end++]);
  return end;
}

Bytes BlockIo::BytesOf(std::span<const BlockObject> objects) const {
  Bytes bytes;
  for (const BlockObject& object : objects) bytes += BytesOf(object);
  return bytes;
}

void BlockIo::ListSegments(std::span<const BlockObject> batch) {
  segments_.clear();
  ends_.clear();
  for (const BlockObject& object : batch) {
    context_.memory.AppendSegments(object.group, object.shard, object.block, segments_);
    ends_.push_back(segments_.size());
  }
}

std::span<const store::Segment> BlockIo::SegmentsOf(size_t object) const {
  const size_t begin = object == 0 ? 0 : ends_[object - 1];
  return std::span(segments_).subspan(begin, ends_[object] - begin);
}

void BlockIo::ListStaging(std::span<const BlockObject> batch) {
  staging_.clear();
  std::byte* at = lane_->staging().data();
  for (const BlockObject& object : batch) {
    const auto size = static_cast<size_t>(BytesOf(object).value());
    staging_.push_back({.data = at, .size = size});
    at += size;
  }
}

absl::Status BlockIo::Put(std::span<const BlockObject> batch, std::span<store::PutAnswer> answers) {
  ListSegments(batch);
  if (!direct()) {
    ListStaging(batch);
    TENURE_RETURN_IF_ERROR(lane_->Gather(segments_, lane_->staging().data()));
  }
  sources_.clear();
  for (const store::Segment& segment : direct() ? segments_ : staging_)
    sources_.push_back({segment.data, segment.size});
  puts_.clear();
  for (size_t i = 0; i < batch.size(); ++i) {
    const size_t begin = direct() ? (i == 0 ? 0 : ends_[i - 1]) : i;
    const size_t end = direct() ? ends_[i] : i + 1;
    const kv::GroupSpec& spec = context_.config.groups()[static_cast<size_t>(batch[i].group.value())];
    puts_.push_back({.key = batch[i].key,
                     .segments = std::span(sources_).subspan(begin, end - begin),
                     .parent = batch[i].parent,
                     .kind = connector::ObjectKindOf(spec.kind)});
  }
  return context_.pool.Put(puts_, answers);
}

absl::Status BlockIo::Get(std::span<const BlockObject> batch, std::span<store::KeyAnswer> answers) {
  ListSegments(batch);
  if (!direct()) ListStaging(batch);
  gets_.clear();
  for (size_t i = 0; i < batch.size(); ++i) {
    gets_.push_back({.key = batch[i].key,
                     .segments = direct() ? SegmentsOf(i) : std::span<const store::Segment>(staging_).subspan(i, 1)});
  }
  TENURE_RETURN_IF_ERROR(context_.pool.Get(gets_, answers));
  if (direct()) return absl::OkStatus();
  // Runs of loaded objects, so that a batch without a miss is one scatter.
  for (size_t begin = 0; begin < batch.size();) {
    size_t end = begin;
    while (end < batch.size() && answers[end] == store::KeyAnswer::kPresent) ++end;
    if (end > begin) {
      const size_t first = begin == 0 ? 0 : ends_[begin - 1];
      const absl::Status status =
          lane_->Scatter(staging_[begin].data, std::span(segments_).subspan(first, ends_[end - 1] - first));
      if (!status.ok()) return absl::AbortedError(status.message());
    }
    begin = end + 1;
  }
  return absl::OkStatus();
}

}  // namespace tenure::engine
