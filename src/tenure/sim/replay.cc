#include "tenure/sim/replay.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <utility>

#include "tenure/base/random.h"
#include "tenure/base/status.h"
#include "tenure/connector/save_plan.h"
#include "tenure/sim/boundary_audit.h"
#include "tenure/sim/slab_choice.h"
#include "tenure/store/embedded_pool.h"

namespace tenure::sim {
namespace {

constexpr int64_t kObjectsMax = int64_t{1} << 27;
// An unlimited store is one that cannot fill before its objects reach a limit that is checked.
constexpr int64_t kUnlimitedSlabsMax = int64_t{1} << 19;
constexpr int64_t kUnlimitedObjectsPerSlabMax = int64_t{1} << 20;

// A trace's id names a block and all before it, so any injective digest of it is a block hash.
kv::BlockHash HashOfId(int64_t id) {
  constexpr uint64_t kSecondHalf = 0x9E3779B97F4A7C15u;
  const std::array<uint64_t, 2> words = {Random::Mix(static_cast<uint64_t>(id) + 1),
                                         Random::Mix(static_cast<uint64_t>(id) + kSecondHalf)};
  std::array<uint8_t, sizeof words> bytes{};
  std::memcpy(bytes.data(), words.data(), bytes.size());
  return kv::BlockHash::FromTrusted(bytes);
}

class TraceHashes final : public connector::HashSource {
 public:
  explicit TraceHashes(std::span<const int64_t> block_ids) : block_ids_(block_ids) {}
  int64_t size() const override { return static_cast<int64_t>(block_ids_.size()); }
  absl::Status Read(std::span<const kv::HashIndex> indices, std::span<kv::BlockHash> hashes) const override {
    for (size_t i = 0; i < indices.size(); ++i)
      hashes[i] = HashOfId(block_ids_[static_cast<size_t>(indices[i].value())]);
    return absl::OkStatus();
  }

 private:
  std::span<const int64_t> block_ids_;
};

absl::Status Validate(const ReplayOptions& options) {
  const Tokens block = options.model.config.scheduler_block_size();
  if (options.state_every < Tokens(0) || options.state_every % block != Tokens(0)) {
    return InvalidArgument("--state-every {}: give 0 or a multiple of the model's scheduler block of {} tokens",
                           options.state_every.value(), block.value());
  }
  if (options.lease_ttl <= absl::ZeroDuration() || options.lease_ttl > store::Pool::kLeaseTtlMax) {
    return InvalidArgument("--lease-ttl {}: give more than 0 and at most 24h", absl::FormatDuration(options.lease_ttl));
  }
  if (options.lease_modes.empty() || options.lease_modes.size() > BoundaryAudit::kStoresMax ||
      std::ranges::count(options.lease_modes, options.lease_modes[0]) > 1) {
    return InvalidArgument("--lease: give all, selective, or both");
  }
  if (options.capacity && *options.capacity < options.model.largest_chunk()) {
    return InvalidArgument("--capacity: {} bytes are less than one object of {} ({} bytes); give more",
                           options.capacity->value(), options.model.name, options.model.largest_chunk().value());
  }
  return absl::OkStatus();
}

// How the memory of each store is cut.
struct Layout {
  Bytes slab;
  Bytes capacity;
  int64_t objects_max = kObjectsMax;
};

// Every object takes at most one slot of the largest size, so a store of this layout has room for objects_max of any
// mixture.
Layout UnlimitedLayout(const ModelProfile& model) {
  const Bytes largest = model.largest_chunk();
  const int64_t sizes = static_cast<int64_t>(model.chunk_bytes.size());
  const int64_t per_slab = std::min(kUnlimitedObjectsPerSlabMax, kChunkBytesMax / largest);
  const int64_t slabs = std::min(kUnlimitedSlabsMax, CeilDiv(kObjectsMax, per_slab));
  return {largest * per_slab, largest * per_slab * (slabs + sizes), std::min(kObjectsMax, slabs * per_slab)};
}

Layout LayoutOf(const ReplayOptions& options) {
  if (!options.capacity) return UnlimitedLayout(options.model);
  const Bytes smallest = *std::ranges::min_element(options.model.chunk_bytes);
  return {ChooseSlab(options.model.chunk_bytes, *options.capacity), *options.capacity,
          std::min(kObjectsMax, *options.capacity / smallest + 1)};
}

store::EmbeddedPoolOptions PoolOptions(const ReplayOptions& options, const Layout& layout) {
  store::EmbeddedPoolOptions pool;
  pool.slab_bytes = layout.slab;
  pool.capacity = layout.capacity;
  pool.mode = options.pool == ReplayPool::kClosed ? store::PoolMode::kClosed : store::PoolMode::kIndependent;
  pool.memory = store::MemoryKind::kVirtual;
  pool.objects_max = layout.objects_max;
  pool.index_grows = true;
  pool.shards = 1;  // One thread, so one exact order of eviction.
  if (!options.capacity) pool.high_watermark = pool.low_watermark = 1.0;
  if (options.pool == ReplayPool::kMooncake) pool.policy = store::MakeMooncakePolicy();
  return pool;
}

// A request as every column sees it.
struct Arrival {
  const TraceRequest& request;
  std::span<const int64_t> block_ids;  // Of the whole blocks.
  Tokens unlimited_hit;
};

}  // namespace

class Replay::Core {
 public:
  Core(ReplayOptions options, const Clock& timer)
      : options_(std::move(options)),
        timer_(timer),
        audit_(options_.model.config),
        ranks_(config().groups().size(), 1) {
    for (const Bytes bytes : options_.model.chunk_bytes) {
      segments_.push_back({nullptr, static_cast<size_t>(bytes.value())});
    }
    layout_ = LayoutOf(options_);
    report_.slab_bytes = layout_.slab;
  }

  absl::Status AddColumn(connector::LeaseMode lease) {
    Column column;
    column.report.lease = lease;
    TENURE_ASSIGN_OR_RETURN(column.pool, store::EmbeddedPool::Create(PoolOptions(options_, layout_), clock_));
    connector::GroupNamespaces namespaces;
    for (size_t g = 0; g < config().groups().size(); ++g) {
      TENURE_ASSIGN_OR_RETURN(const kv::NamespaceId name_space,
                              column.pool->OpenNamespace(fmt::format("replay@group:{}", g)));
      column.namespaces.push_back(name_space);
      namespaces.push_back({name_space});
    }
    TENURE_ASSIGN_OR_RETURN(
        connector::Lookup lookup,
        connector::Lookup::Create(config(), *column.pool, std::move(namespaces),
                                  {.mode = options_.lookup, .lease = lease, .lease_ttl = options_.lease_ttl}));
    column.lookup = std::make_unique<connector::Lookup>(std::move(lookup));
    columns_.push_back(std::move(column));
    return absl::OkStatus();
  }

  absl::Status Feed(const TraceRequest& request) {
    const int64_t blocks_needed = CeilDiv(request.input_length, config().hash_block_size());
    if (request.input_length < Tokens(1) || static_cast<int64_t>(request.hash_ids.size()) < blocks_needed) {
      return InvalidArgument("hash_ids has {} entries for {} tokens: give {}", request.hash_ids.size(),
                             request.input_length.value(), blocks_needed);
    }
    clock_.AdvanceTo(MonotonicTime() + absl::Milliseconds(request.timestamp_ms));
    const size_t whole_blocks = static_cast<size_t>(request.input_length / config().hash_block_size());
    Arrival arrival{request, std::span(request.hash_ids).first(whole_blocks), Tokens()};
    arrival.unlimited_hit = audit_.UnlimitedHit(arrival.block_ids, request.input_length);
    hits_.clear();
    for (Column& column : columns_) hits_.push_back(FindHit(column, arrival));
    // Three units or more: the rule can give a longer hit where a store holds less (hit_rule.h, quirks), so this is a
    // maximum.
    arrival.unlimited_hit = std::max(arrival.unlimited_hit, *std::ranges::max_element(hits_));
    Account(arrival);
    TENURE_RETURN_IF_ERROR(KeepAll(arrival));
    for (size_t i = 0; i < columns_.size(); ++i) {
      AccountHit(i, arrival);
      TENURE_RETURN_IF_ERROR(Save(i, arrival));
      while (columns_[i].pool->Maintain()) {
      }
    }
    return absl::OkStatus();
  }

  ReplayReport Report() const {
    ReplayReport report = report_;
    report.distinct_blocks = audit_.blocks();
    report.audit_bytes = audit_.bytes();
    for (const Column& column : columns_) {
      report.modes.push_back(column.report);
      report.modes.back().pool = column.pool->Stats();
      report.modes.back().lookups = column.lookup->counters();
    }
    return report;
  }

 private:
  struct Column {
    std::unique_ptr<store::EmbeddedPool> pool;
    std::vector<kv::NamespaceId> namespaces;  // Of each group.
    std::unique_ptr<connector::Lookup> lookup;
    ModeReport report;
    int64_t stored = 0;  // In an unlimited store.
  };

  const kv::CacheConfig& config() const { return options_.model.config; }
  Tokens LongestHit(Tokens num_tokens) const { return RoundDown(num_tokens - Tokens(1), config().hit_alignment()); }

  Tokens FindHit(Column& column, const Arrival& arrival) {
    const TraceHashes hashes(arrival.block_ids);
    const MonotonicTime start = timer_.Now();
    connector::LookupResult result = column.lookup->Find(hashes, arrival.request.input_length);
    column.report.lookup_nanoseconds.Add(absl::ToInt64Nanoseconds(timer_.Now() - start));
    column.report.keys_probed.Add(result.cost.keys_probed);
    column.report.keys_leased.Add(result.cost.keys_leased);
    for (store::Lease& lease : result.leases) lease.Forget();
    return result.hit.length;
  }

  void Account(const Arrival& arrival) {
    const TraceRequest& request = arrival.request;
    if (report_.requests == 0) first_ms_ = request.timestamp_ms;
    ++report_.requests;
    report_.duration_ms = request.timestamp_ms - first_ms_;
    report_.prompt_tokens += request.input_length.value();
    report_.output_tokens += request.output_length.value();
    report_.reusable_tokens += arrival.unlimited_hit.value();
    report_.tail_not_cacheable_tokens += (request.input_length % config().scheduler_block_size()).value();
  }

  void AccountHit(size_t index, const Arrival& arrival) {
    ModeReport& report = columns_[index].report;
    const Tokens hit = hits_[index];
    report.hit_tokens += hit.value();
    report.computed_tokens += (arrival.request.input_length - hit).value();
    if (hit == Tokens(0)) {
      ++report.requests_without_hit;
    } else if (hit == LongestHit(arrival.request.input_length)) {
      ++report.requests_with_full_hit;
    } else {
      ++report.requests_with_partial_hit;
    }
    const Tokens lost = arrival.unlimited_hit - hit;
    if (lost == Tokens(0)) return;
    const size_t boundary_block = static_cast<size_t>(arrival.unlimited_hit / config().hash_block_size()) - 1;
    const auto saved_ms = audit_.LastSaved(index, arrival.block_ids[boundary_block]);
    if (!saved_ms) {
      report.lost.never_saved += lost.value();
      return;
    }
    const absl::Duration age = absl::Milliseconds(arrival.request.timestamp_ms - *saved_ms);
    const LostAge bucket = age < kLostYoungEnd ? kLostYoung : age <= kLostMiddleEnd ? kLostMiddle : kLostOld;
    report.lost.evicted[bucket] += lost.value();
  }

  // The unlimited store saves what this prompt computes there.
  absl::Status KeepAll(const Arrival& arrival) {
    const connector::SaveQuery query{arrival.unlimited_hit, arrival.request.input_length, options_.state_every, ranks_};
    TENURE_ASSIGN_OR_RETURN(const std::vector<connector::SaveObject> plan, connector::PlanSave(config(), query));
    for (const connector::SaveObject& object : plan) audit_.Keep(BlockIdOf(arrival, object.hash), object.group);
    return absl::OkStatus();
  }

  absl::Status Save(size_t index, const Arrival& arrival) {
    Column& column = columns_[index];
    const connector::SaveQuery query{hits_[index], arrival.request.input_length, options_.state_every, ranks_};
    TENURE_ASSIGN_OR_RETURN(const std::vector<connector::SaveObject> plan, connector::PlanSave(config(), query));
    connector::SaveProgress progress(config(), query, plan);
    while (const connector::SaveObject* object = progress.Next()) {
      TENURE_ASSIGN_OR_RETURN(const store::PutAnswer answer, Put(column, arrival, *object));
      progress.Record(answer);
      if (answer == store::PutAnswer::kStored) {
        if (!options_.capacity && ++column.stored >= layout_.objects_max) {
          return ResourceExhausted("--capacity unlimited holds at most {} objects of {}; give a capacity",
                                   layout_.objects_max, options_.model.name);
        }
        audit_.Saved(index, BlockIdOf(arrival, object->hash), object->group, arrival.request.timestamp_ms);
      }
      if (!store::IsKept(answer)) ++column.report.puts_refused;
    }
    column.report.puts_skipped += progress.skipped();
    return absl::OkStatus();
  }

  absl::StatusOr<store::PutAnswer> Put(Column& column, const Arrival& arrival,
                                       const connector::SaveObject& object) const {
    const size_t group = static_cast<size_t>(object.group.value());
    store::PutObject put{.key = {column.namespaces[group], HashOfId(BlockIdOf(arrival, object.hash))},
                         .segments = std::span(segments_).subspan(group, 1),
                         .parent = std::nullopt,
                         .kind = connector::ObjectKindOf(config().groups()[group].kind)};
    if (object.parent) {
      put.parent = kv::ObjectKey{column.namespaces[static_cast<size_t>(object.parent->group.value())],
                                 HashOfId(BlockIdOf(arrival, object.parent->hash))};
    }
    store::PutAnswer answer = store::PutAnswer::kNotStored;
    TENURE_RETURN_IF_ERROR(column.pool->Put(std::span(&put, 1), std::span(&answer, 1)));
    return answer;
  }

  static int64_t BlockIdOf(const Arrival& arrival, kv::HashIndex hash) {
    return arrival.block_ids[static_cast<size_t>(hash.value())];
  }

  ReplayOptions options_;
  Layout layout_;
  const Clock& timer_;
  ManualClock clock_;
  BoundaryAudit audit_;
  std::vector<int32_t> ranks_;                 // One namespace a group: sizes are of the whole model.
  std::vector<store::ConstSegment> segments_;  // Of each group.
  std::vector<Column> columns_;
  std::vector<Tokens> hits_;  // Of the current request, a column each.
  ReplayReport report_;
  int64_t first_ms_ = 0;
};

Replay::Replay(std::unique_ptr<Core> core) : core_(std::move(core)) {}
Replay::~Replay() = default;

absl::StatusOr<std::unique_ptr<Replay>> Replay::Create(ReplayOptions options, const Clock& timer) {
  TENURE_RETURN_IF_ERROR(Validate(options));
  const std::vector<connector::LeaseMode> lease_modes = options.lease_modes;
  auto core = std::make_unique<Core>(std::move(options), timer);
  for (const connector::LeaseMode lease : lease_modes) TENURE_RETURN_IF_ERROR(core->AddColumn(lease));
  return std::unique_ptr<Replay>(new Replay(std::move(core)));
}

absl::Status Replay::Feed(const TraceRequest& request) { return core_->Feed(request); }

ReplayReport Replay::Report() const { return core_->Report(); }

}  // namespace tenure::sim
