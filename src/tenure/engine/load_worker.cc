#include "tenure/engine/load_worker.h"

#include <algorithm>
#include <utility>

#include "tenure/base/log.h"
#include "tenure/base/status.h"

namespace tenure::engine {

using store::KeyAnswer;

namespace {

LoadFailure FailureOf(KeyAnswer answer) {
  switch (answer) {
    case KeyAnswer::kSizeDiffers:
      return LoadFailure::kWrongSize;
    case KeyAnswer::kUnavailable:
      return LoadFailure::kUnavailable;
    case KeyAnswer::kPresent:
    case KeyAnswer::kAbsent:
      break;
  }
  return LoadFailure::kAbsent;
}

}  // namespace

absl::StatusOr<std::unique_ptr<LoadWorker>> LoadWorker::Create(const WorkerContext& context, const Options& options) {
  if (options.threads < 1 || options.threads > kThreadsMax) {
    return InvalidArgument("load_threads is {}; use 1 to {}", options.threads, kThreadsMax);
  }
  if (options.deadline <= absl::ZeroDuration()) {
    return InvalidArgument("load_deadline is {} s; use more than 0", absl::ToDoubleSeconds(options.deadline));
  }
  std::unique_ptr<LoadWorker> worker(new LoadWorker(context, options));
  for (int i = 0; i < options.threads; ++i) {
    TENURE_ASSIGN_OR_RETURN(std::unique_ptr<BlockIo> lane, BlockIo::Create(context));
    worker->lanes_.push_back(std::move(lane));
  }
  for (const std::unique_ptr<BlockIo>& lane : worker->lanes_) {
    worker->threads_.emplace_back([worker = worker.get(), io = lane.get()] { worker->Run(*io); });
  }
  return worker;
}

LoadWorker::~LoadWorker() { Stop(); }

void LoadWorker::Stop() {
  for (Load& load : queue_.Stop()) FailUnread(std::move(load));
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void LoadWorker::Submit(std::vector<LoadOrder> orders, const std::shared_ptr<Fence>& fence) {
  SubmitAll(std::move(orders), fence, nullptr);
}

void LoadWorker::LoadNow(std::vector<LoadOrder> orders, const std::shared_ptr<Fence>& fence) {
  const auto latch = std::make_shared<Latch>();
  {
    MutexLock lock(latch->mutex);
    latch->left = orders.size();
  }
  const MonotonicTime deadline = SubmitAll(std::move(orders), fence, latch);
  {
    MutexLock lock(latch->mutex);
    while (latch->left > 0 && context_.clock.Now() < deadline) {
      latch->done.WaitFor(latch->mutex, deadline - context_.clock.Now());
    }
  }
  FailLate();
  MutexLock lock(latch->mutex);
  while (latch->left > 0) latch->done.Wait(latch->mutex);
}

MonotonicTime LoadWorker::SubmitAll(std::vector<LoadOrder> orders, const std::shared_ptr<Fence>& fence,
                                    const std::shared_ptr<Latch>& latch) {
  const MonotonicTime deadline = context_.clock.Now() + options_.deadline;
  for (LoadOrder& order : orders) {
    Load load{.order = std::move(order), .deadline = deadline, .fence = fence, .latch = latch};
    if (!queue_.Push(load)) FailUnread(std::move(load));
  }
  return deadline;
}

void LoadWorker::FailLate() {
  const MonotonicTime now = context_.clock.Now();
  for (Load& load : queue_.TakeIf([now](const Load& load) { return load.deadline <= now; })) {
    FailUnread(std::move(load), LoadFailure::kDeadline);
  }
}

void LoadWorker::Run(BlockIo& io) {
  while (std::optional<Load> load = queue_.Pop()) {
    Process(io, *std::move(load));
    queue_.Done();
  }
}

void LoadWorker::Process(BlockIo& io, Load load) {
  if (load.order.refused) return FailUnread(std::move(load));
  const std::optional<std::vector<BlockObject>> objects = ObjectsOf(load.order);
  Outcome outcome;
  if (objects) {
    const absl::Status written = load.fence->Wait();
    if (written.ok()) {
      outcome = Read(io, *objects, load.deadline);
    } else {
      for (const BlockObject& object : *objects) outcome.Fail(LoadFailure::kCopy, object);
      if (log_pace_.Allows()) LogWarning("the load of request {} is failed: {}", load.order.request, Message(written));
    }
  } else {
    outcome = AllFailed(load.order, LoadFailure::kBadBlock);
    if (log_pace_.Allows()) {
      LogError("the load of request {} names a group, block or hash that this engine does not have; it is failed",
               load.order.request);
    }
  }
  Report(std::move(load), std::move(outcome));
}

std::optional<std::vector<BlockObject>> LoadWorker::ObjectsOf(const LoadOrder& order) const {
  std::vector<BlockObject> objects;
  for (const LoadChunk& chunk : order.chunks) {
    const bool has_group =
        chunk.group.value() >= 0 && static_cast<size_t>(chunk.group.value()) < context_.memory.groups();
    if (!has_group || !context_.memory.IsUsable(chunk.block) || chunk.hash.size() == 0) return std::nullopt;
    const auto& shards = context_.namespaces[static_cast<size_t>(chunk.group.value())];
    for (size_t shard = 0; shard < shards.size(); ++shard) {
      objects.push_back({.key = {shards[shard], chunk.hash},
                         .group = chunk.group,
                         .shard = static_cast<int32_t>(shard),
                         .block = chunk.block});
    }
  }
  // Ranks begin at different keys, so that they do not all ask one storage node at a time.
  if (!objects.empty()) {
    const auto first = static_cast<ptrdiff_t>(static_cast<size_t>(context_.tp_rank) % objects.size());
    std::rotate(objects.begin(), objects.begin() + first, objects.end());
  }
  return objects;
}

LoadWorker::Outcome LoadWorker::Read(BlockIo& io, const std::vector<BlockObject>& objects, MonotonicTime deadline) {
  Outcome outcome;
  const std::span<const BlockObject> all(objects);
  size_t begin = 0;
  std::optional<LoadFailure> stopped_by;
  while (begin < all.size() && !stopped_by) {
    if (context_.clock.Now() >= deadline) {
      stopped_by = LoadFailure::kDeadline;
      break;
    }
    const size_t end = io.BatchEnd(all, begin);
    if (!ReadBatch(io, all.subspan(begin, end - begin), outcome)) stopped_by = LoadFailure::kNotTried;
    begin = end;
  }
  for (const BlockObject& object : all.subspan(begin)) outcome.Fail(*stopped_by, object);
  return outcome;
}

// False when a key of it was not loaded.
bool LoadWorker::ReadBatch(BlockIo& io, std::span<const BlockObject> batch, Outcome& outcome) {
  std::vector<KeyAnswer> answers(batch.size(), KeyAnswer::kUnavailable);
  const Bytes bytes = io.BytesOf(batch);
  OperationRecord record{.operation = Operation::kLoadGet,
                         .duration = absl::ZeroDuration(),
                         .keys = static_cast<int64_t>(batch.size()),
                         .bytes = bytes.value()};
  const absl::Status status = Measure(context_.clock, record, [&] { return io.Get(batch, answers); });
  if (!status.ok()) {
    context_.reports.AddOperation(record);
    const LoadFailure cause = absl::IsAborted(status) ? LoadFailure::kCopy : LoadFailure::kUnavailable;
    for (const BlockObject& object : batch) outcome.Fail(cause, object);
    if (log_pace_.Allows()) LogWarning("a load of {} keys failed: {}", batch.size(), Message(status));
    return false;
  }
  Bytes loaded;
  for (size_t i = 0; i < batch.size(); ++i) {
    if (answers[i] == KeyAnswer::kPresent) {
      loaded += io.BytesOf(batch[i]);
    } else {
      outcome.Fail(FailureOf(answers[i]), batch[i]);
      ++record.failed_keys;
    }
  }
  if (record.failed_keys > 0) record.status = OperationStatus::kPartialFailure;
  context_.reports.AddOperation(record);
  context_.reports.Count([&](WorkerCounters& counters) {
    counters.loaded_keys_total += record.keys - record.failed_keys;
    counters.loaded_bytes_total += loaded.value();
  });
  RemoveWrong(batch, answers);
  return record.failed_keys == 0;
}

// A key whose bytes cannot be loaded here would be found, leased and failed again for ever.
void LoadWorker::RemoveWrong(std::span<const BlockObject> batch, std::span<const KeyAnswer> answers) {
  std::vector<kv::ObjectKey> wrong;
  for (size_t i = 0; i < batch.size(); ++i) {
    if (answers[i] == KeyAnswer::kSizeDiffers) wrong.push_back(batch[i].key);
  }
  if (wrong.empty()) return;
  std::vector<KeyAnswer> removed(wrong.size(), KeyAnswer::kUnavailable);
  const absl::Status status = context_.pool.Remove(wrong, removed);
  if (log_pace_.Allows()) {
    LogWarning(
        "{} keys hold objects of another size than this engine's blocks and are removed{}; another layout "
        "writes under the same names",
        wrong.size(), status.ok() ? "" : fmt::format(" (it failed: {})", Message(status)));
  }
}

void LoadWorker::FailUnread(Load load, LoadFailure cause) {
  Outcome outcome = AllFailed(load.order, cause);
  // Also without a block: what was not read has not been loaded.
  if (load.order.chunks.empty()) ++outcome.failed_keys[static_cast<size_t>(cause)];
  Report(std::move(load), std::move(outcome));
}

LoadWorker::Outcome LoadWorker::AllFailed(const LoadOrder& order, LoadFailure cause) const {
  Outcome outcome;
  for (const LoadChunk& chunk : order.chunks) {
    ++outcome.failed_keys[static_cast<size_t>(cause)];
    if (context_.memory.IsUsable(chunk.block)) outcome.blocks.push_back(chunk.block);
  }
  return outcome;
}

void LoadWorker::Report(Load load, Outcome outcome) {
  if (outcome.ok()) {
    context_.reports.AddLoaded(std::move(load.order.request));
  } else {
    std::ranges::sort(outcome.blocks);
    outcome.blocks.erase(std::unique(outcome.blocks.begin(), outcome.blocks.end()), outcome.blocks.end());
    context_.reports.Count([&](WorkerCounters& counters) {
      for (size_t i = 0; i < kLoadFailures; ++i) counters.failed_load_keys_total[i] += outcome.failed_keys[i];
    });
    context_.reports.AddFailed(std::move(load.order.request), outcome.blocks);
  }
  if (load.latch == nullptr) return;
  MutexLock lock(load.latch->mutex);
  --load.latch->left;
  load.latch->done.SignalAll();
}

}  // namespace tenure::engine
