#include "tenure/engine/save_worker.h"

#include <algorithm>
#include <utility>

#include "tenure/base/log.h"
#include "tenure/base/status.h"

namespace tenure::engine {

using connector::SaveChains;
using store::KeyAnswer;
using store::PutAnswer;

namespace {

// The pool has no room: what it would refuse as well need not be tried.
bool IsPressure(PutAnswer answer) { return answer == PutAnswer::kRefusedFull || answer == PutAnswer::kRefusedIndex; }

Tokens EndOf(const TokenWindow& window) { return window.start + Tokens(static_cast<int64_t>(window.ids.size())); }

// `retry` and `window` in one, where they are contiguous.
TokenWindow Joined(const std::optional<TokenWindow>& retry, const TokenWindow& window) {
  if (!retry || window.ids.empty() || EndOf(*retry) != window.start) return window;
  TokenWindow joined = *retry;
  joined.ids.insert(joined.ids.end(), window.ids.begin(), window.ids.end());
  return joined;
}

}  // namespace

bool SaveWorker::Pass::Failed() const { return std::ranges::find(fates, Fate::kNotKept) != fates.end(); }

bool SaveWorker::Pass::ChunksKept() const {
  for (size_t i = 0; i < items.size(); ++i) {
    if (items[i].begin && fates[i] != Fate::kPresent && fates[i] != Fate::kKept) return false;
  }
  return true;
}

absl::StatusOr<std::unique_ptr<SaveWorker>> SaveWorker::Create(const WorkerContext& context, Options options) {
  options.list.closed = context.pool.traits().closed;
  std::unique_ptr<SaveWorker> worker(new SaveWorker(context, std::move(options)));
  TENURE_ASSIGN_OR_RETURN(worker->io_, BlockIo::Create(context));
  worker->thread_ = std::thread([worker = worker.get()] { worker->Run(); });
  return worker;
}

SaveWorker::SaveWorker(const WorkerContext& context, Options options)
    : context_(context),
      options_(std::move(options)),
      list_(context.config, context.memory, context.namespaces, options_.list),
      log_pace_(context.clock),
      queue_(kQueueMax) {}

SaveWorker::~SaveWorker() { Stop(); }

void SaveWorker::Stop() {
  for (const Job& job : queue_.Stop()) {
    context_.reports.Count([](WorkerCounters& counters) { ++counters.skipped_save_jobs_total; });
    context_.reports.AddSaved(job.order.job);
  }
  if (thread_.joinable()) thread_.join();
}

void SaveWorker::Submit(StepPlan plan, const std::shared_ptr<Fence>& fence) {
  for (const std::string& request : plan.preempted) {
    const auto found = requests_.find(request);
    if (found == requests_.end()) continue;
    found->second->preempted.store(true, std::memory_order_relaxed);
    requests_.erase(found);
  }
  for (SaveOrder& order : plan.saves) {
    std::shared_ptr<Request>& request = requests_[order.request];
    if (request == nullptr) request = std::make_shared<Request>();
    Job job{.order = std::move(order), .request = request, .fence = fence};
    if (queue_.Push(job)) continue;
    context_.reports.Count([](WorkerCounters& counters) { ++counters.skipped_save_jobs_total; });
    context_.reports.AddSaved(job.order.job);
  }
  for (const std::string& request : plan.finished) requests_.erase(request);
}

void SaveWorker::Run() {
  while (std::optional<Job> job = queue_.Pop()) {
    const JobEnd end = Process(*job);
    context_.reports.Count([end](WorkerCounters& counters) {
      counters.failed_save_jobs_total += end == JobEnd::kFailed;
      counters.skipped_save_jobs_total += end == JobEnd::kSkipped;
    });
    context_.reports.AddSaved(job->order.job);
    job.reset();  // Its fence too is gone when the queue says so.
    queue_.Done();
  }
}

SaveWorker::JobEnd SaveWorker::Process(Job& job) {
  Request& request = *job.request;
  if (request.preempted.load(std::memory_order_relaxed)) return JobEnd::kSkipped;
  absl::StatusOr<JobEnd> end = JobEnd::kSkipped;
  TokenWindow tokens;
  if (absl::Status status = TakeHashes(job); !status.ok()) {
    end = std::move(status);
  } else {
    tokens = Joined(request.retry, job.order.tokens);
    request.retry = tokens.ids.empty() ? std::move(request.retry) : tokens;
    if (pressure_ == 0 || request.skipped_in_pressure != pressure_) end = Save(job, tokens);
  }
  if (end.ok()) return *end;
  if (log_pace_.Allows()) {
    LogWarning("saving KV of request {} failed: {}; its blocks are tried again with its next order", job.order.request,
               Message(end.status()));
  }
  return JobEnd::kFailed;
}

absl::Status SaveWorker::TakeHashes(Job& job) const {
  std::vector<kv::BlockHash>& hashes = job.request->hashes;
  const int64_t first = job.order.first_hash;
  if (first < 0 || first > static_cast<int64_t>(hashes.size())) {
    return InvalidArgument("its hashes begin at {} and its earlier orders had {}; send them without a gap", first,
                           hashes.size());
  }
  for (const kv::BlockHash& hash : job.order.hashes) {
    if (hash.size() == 0) return InvalidArgument("it has an empty hash; send 16 or 32 bytes");
  }
  hashes.resize(static_cast<size_t>(first));
  hashes.insert(hashes.end(), job.order.hashes.begin(), job.order.hashes.end());
  return absl::OkStatus();
}

absl::StatusOr<SaveWorker::JobEnd> SaveWorker::Save(Job& job, const TokenWindow& tokens) {
  Request& request = *job.request;
  const Tokens hashed = RoundDown(context_.config.hash_block_size() * static_cast<int64_t>(request.hashes.size()),
                                  context_.config.scheduler_block_size());
  const Tokens length =
      RoundDown(std::clamp(job.order.length, Tokens(0), hashed), context_.config.scheduler_block_size());
  const SaveList::Query query{
      .order = job.order, .hashes = request.hashes, .start = std::min(request.saved, hashed), .length = length};
  TENURE_ASSIGN_OR_RETURN(std::vector<SaveItem> boundary_puts, list_.BoundaryPuts(query));
  if (!IsClosed()) {
    TENURE_ASSIGN_OR_RETURN(const Pass pass, SaveItems(job, std::move(boundary_puts), tokens));
    if (pass.Failed()) return JobEnd::kFailed;
    if (length == Tokens(0)) return JobEnd::kSaved;
    boundary_puts.clear();
  }
  TENURE_ASSIGN_OR_RETURN(std::vector<SaveItem> items, list_.Chunks(query));
  list_.Merge(items, std::move(boundary_puts));
  TENURE_ASSIGN_OR_RETURN(const Pass pass, SaveItems(job, std::move(items), tokens));
  if (length > Tokens(0) && pass.ChunksKept()) {
    request.saved = std::max(request.saved, length);
    request.retry.reset();
  }
  return pass.Failed() ? JobEnd::kFailed : JobEnd::kSaved;
}

absl::StatusOr<SaveWorker::Pass> SaveWorker::SaveItems(Job& job, std::vector<SaveItem> items,
                                                       const TokenWindow& tokens) {
  Pass pass{.items = std::move(items), .fates = {}};
  if (pass.items.empty()) return pass;
  TENURE_RETURN_IF_ERROR(Probe(pass));
  if (std::ranges::find(pass.fates, Fate::kMissing) == pass.fates.end()) return pass;
  TENURE_RETURN_IF_ERROR(job.fence->Wait());
  const absl::Status status = PutMissing(job, pass);
  if (options_.events) AddEvents(job, pass, tokens);
  if (!status.ok()) return status;
  const bool put = std::ranges::find(pass.fates, Fate::kKept) != pass.fates.end();
  if (put && !pass.Failed() && pressure_ != 0) {
    pressure_ = 0;
    LogInfo("the pool takes saves again; the requests that waited go on");
  }
  return pass;
}

absl::Status SaveWorker::Probe(Pass& pass) {
  std::vector<kv::ObjectKey> keys;
  for (const SaveItem& item : pass.items) keys.push_back(item.block.key);
  std::vector<KeyAnswer> answers(keys.size(), KeyAnswer::kUnavailable);
  OperationRecord record{
      .operation = Operation::kSaveExists, .duration = absl::ZeroDuration(), .keys = static_cast<int64_t>(keys.size())};
  const absl::Status status = Measure(context_.clock, record, [&] { return context_.pool.Probe(keys, answers); });
  context_.reports.AddOperation(record);
  TENURE_RETURN_IF_ERROR(status);
  int64_t present = 0;
  for (const KeyAnswer answer : answers) {
    present += answer == KeyAnswer::kPresent;
    pass.fates.push_back(answer == KeyAnswer::kPresent ? Fate::kPresent : Fate::kMissing);
  }
  context_.reports.Count([present](WorkerCounters& counters) { counters.present_keys_total += present; });
  return absl::OkStatus();
}

absl::Status SaveWorker::PutMissing(Job& job, Pass& pass) {
  SaveChains chains(list_.ranks());
  absl::Status status;
  size_t next = 0;
  while (status.ok()) {
    const std::vector<size_t> batch = FillBatch(pass, next, chains);
    if (batch.empty()) break;
    status = PutBatch(job, pass, batch, chains);
  }
  std::ranges::replace(pass.fates, Fate::kMissing, Fate::kNotKept);
  return status;
}

std::vector<size_t> SaveWorker::FillBatch(Pass& pass, size_t& next, SaveChains& chains) const {
  SaveChains expected = chains;  // As if all of the batch were kept.
  std::vector<size_t> batch;
  Bytes bytes;
  for (; next < pass.items.size(); ++next) {
    const SaveItem& item = pass.items[next];
    if (pass.fates[next] == Fate::kPresent) continue;
    if (item.block.block == kNullBlock || !expected.IsReachable(item.object)) {
      pass.fates[next] = Fate::kNotKept;
      chains.Record(item.object, false);
      expected.Record(item.object, false);
      continue;
    }
    if (!io_->Fits(batch.size(), bytes, item.block)) break;
    bytes += io_->BytesOf(item.block);
    batch.push_back(next);
  }
  return batch;
}

absl::Status SaveWorker::PutBatch(Job& job, Pass& pass, const std::vector<size_t>& batch, SaveChains& chains) {
  std::vector<BlockObject> objects;
  for (const size_t i : batch) objects.push_back(pass.items[i].block);
  std::vector<PutAnswer> answers(objects.size(), PutAnswer::kNotStored);
  OperationRecord record{.operation = Operation::kSavePut,
                         .duration = absl::ZeroDuration(),
                         .keys = static_cast<int64_t>(objects.size()),
                         .bytes = io_->BytesOf(objects).value()};
  const absl::Status status = Measure(context_.clock, record, [&] { return io_->Put(objects, answers); });
  if (!status.ok()) {
    context_.reports.AddOperation(record);
    return status;
  }
  int64_t existed = 0;
  int64_t stored = 0;
  int64_t stored_bytes = 0;
  for (size_t i = 0; i < batch.size(); ++i) {
    pass.fates[batch[i]] = Learn(job, pass.items[batch[i]], answers[i], chains);
    record.failed_keys += pass.fates[batch[i]] == Fate::kNotKept;
    existed += answers[i] == PutAnswer::kExists;
    if (answers[i] != PutAnswer::kStored && pass.fates[batch[i]] != Fate::kWaiting) continue;
    ++stored;
    stored_bytes += io_->BytesOf(objects[i]).value();
  }
  if (record.failed_keys > 0) record.status = OperationStatus::kPartialFailure;
  context_.reports.AddOperation(record);
  context_.reports.Count([&](WorkerCounters& counters) {
    counters.saved_keys_total += stored;
    counters.saved_bytes_total += stored_bytes;
    counters.present_keys_total += existed;
    counters.refused_keys_total += record.failed_keys;
  });
  return absl::OkStatus();
}

SaveWorker::Fate SaveWorker::Learn(Job& job, const SaveItem& item, PutAnswer answer, SaveChains& chains) {
  Request& request = *job.request;
  if (answer == PutAnswer::kWaiting && item.object.parent) {
    if (list_.IsStriped(item.object.parent->group)) return Fate::kWaiting;
    // The chunk that was saved before has left since: what follows has to begin with it anew.
    if (chains.IsReachable(item.object)) request.saved = Tokens(0);
  }
  chains.Record(item.object, store::IsKept(answer));
  if (!IsPressure(answer)) return store::IsKept(answer) ? Fate::kKept : Fate::kNotKept;
  if (pressure_ == 0) pressure_ = ++last_pressure_;
  const bool known = std::exchange(request.skipped_in_pressure, pressure_) == pressure_;
  if (!known && log_pace_.Allows()) {
    LogWarning("the pool has no room ({}): no more of request {} is saved until a later put fits",
               store::ToString(answer), job.order.request);
  }
  return Fate::kNotKept;
}

void SaveWorker::AddEvents(const Job& job, const Pass& pass, const TokenWindow& tokens) {
  const std::vector<kv::BlockHash>& hashes = job.request->hashes;
  std::vector<StoredEvent> events;
  for (size_t i = 0; i < pass.items.size();) {
    const SaveItem& item = pass.items[i];
    bool put = false;
    bool whole = true;
    size_t end = i;  // Of the shards of this chunk.
    for (; end < pass.items.size() && pass.items[end].object.group == item.object.group &&
           pass.items[end].object.hash == item.object.hash;
         ++end) {
      put = put || pass.fates[end] == Fate::kKept || pass.fates[end] == Fate::kWaiting;
      whole = whole && pass.fates[end] != Fate::kNotKept;
    }
    i = end;
    if (!item.begin || !put || !whole) continue;
    const Tokens unit = context_.config.hash_block_size();
    const Tokens chunk_end = unit * (item.object.hash.value() + 1);
    StoredEvent event{.group = item.object.group,
                      .hash = hashes[static_cast<size_t>(item.object.hash.value())],
                      .parent = std::nullopt,
                      .block_size = context_.config.groups()[static_cast<size_t>(item.object.group.value())].block_size,
                      .token_ids = {}};
    if (*item.begin > Tokens(0)) event.parent = hashes[static_cast<size_t>(*item.begin / unit) - 1];
    if (tokens.start <= *item.begin && chunk_end <= EndOf(tokens)) {
      const auto first = tokens.ids.begin() + (*item.begin - tokens.start).value();
      event.token_ids.assign(first, first + (chunk_end - *item.begin).value());
    }
    events.push_back(std::move(event));
  }
  context_.reports.AddEvents(std::move(events));
}

}  // namespace tenure::engine
