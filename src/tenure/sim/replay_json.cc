#include <nlohmann/json.hpp>

#include "tenure/sim/replay_report.h"

namespace tenure::sim {
namespace {

// Keys stay in the order they are written here.
using Json = nlohmann::ordered_json;

constexpr int kFormatVersion = 1;

double Ratio(int64_t part, int64_t whole) {
  return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
}

Json Distribution(const Histogram& histogram) {
  return {{"count", histogram.count()},     {"mean", histogram.mean()},        {"p50", histogram.Quantile(0.5)},
          {"p90", histogram.Quantile(0.9)}, {"p99", histogram.Quantile(0.99)}, {"p99.9", histogram.Quantile(0.999)},
          {"maximum", histogram.maximum()}};
}

Json Held(const store::HeldCounts& held) {
  return {{"leased", held.leased},
          {"pinned", held.pinned},
          {"writing", held.writing},
          {"waiting", held.waiting},
          {"parents", held.parents}};
}

Json Groups(const ModelProfile& model) {
  Json groups = Json::array();
  for (size_t g = 0; g < model.chunk_bytes.size(); ++g) {
    const kv::GroupSpec& spec = model.config.groups()[g];
    Json group = {{"kind", std::string(kv::ToString(spec.kind))}, {"block_size", spec.block_size.value()}};
    if (spec.kind == kv::GroupKind::kWindow) group["window"] = spec.window.value();
    if (spec.kind == kv::GroupKind::kChunked) group["chunk"] = spec.chunk.value();
    group["eagle"] = spec.eagle;
    group["bytes"] = model.chunk_bytes[g].value();
    groups.push_back(std::move(group));
  }
  return groups;
}

Json Options(const ReplayOptions& options) {
  return {{"model", options.model.name},
          {"hash_block_size", options.model.config.hash_block_size().value()},
          {"groups", Groups(options.model)},
          {"pool", std::string(ToString(options.pool))},
          {"capacity_bytes", options.capacity ? Json(options.capacity->value()) : Json(nullptr)},
          {"lookup", std::string(ToString(options.lookup))},
          {"state_every_tokens", options.state_every.value()},
          {"lease_ttl_seconds", absl::ToDoubleSeconds(options.lease_ttl)}};
}

Json Lost(const MissAudit& lost) {
  return {{"total_tokens", lost.total()},
          {"never_saved_tokens", lost.never_saved},
          {"evicted_tokens", lost.evicted_total()},
          {"evicted_younger_than_2min_tokens", lost.evicted[kLostYoung]},
          {"evicted_2_to_10min_tokens", lost.evicted[kLostMiddle]},
          {"evicted_older_than_10min_tokens", lost.evicted[kLostOld]}};
}

Json Pool(const store::PoolStats& pool) {
  return {{"capacity_bytes", pool.capacity.value()},
          {"used_bytes", pool.used.value()},
          {"objects", pool.objects},
          {"index_bytes", pool.index_bytes.value()},
          {"stored_total", pool.stored_total},
          {"stored_bytes_total", pool.stored_bytes_total.value()},
          {"exists_total", pool.exists_total},
          {"evicted_total", pool.evicted_total},
          {"evicted_bytes_total", pool.evicted_bytes_total.value()},
          {"evicted_waiting_total", pool.evicted_waiting_total},
          {"passes_total", pool.passes_total},
          {"recut_slabs_total", pool.recut_slabs_total},
          {"probed_keys_total", pool.probed_keys_total},
          {"probe_hits_total", pool.probe_hits_total},
          {"leased_keys_total", pool.leased_keys_total},
          {"lease_misses_total", pool.lease_misses_total},
          {"refused_full_total", pool.refused_full_total},
          {"refused_index_total", pool.refused_index_total},
          {"refused_waiting_total", pool.refused_waiting_total},
          {"refused_size_total", pool.refused_size_total},
          {"evictions_refused_by", Held(pool.refused_by)},
          {"held", Held(pool.held)}};
}

Json Lookups(const connector::LookupCounters& lookups) {
  return {{"lookups_total", lookups.lookups_total},
          {"hits_total", lookups.hits_total},
          {"shorter_hits_total", lookups.shorter_hits_total},
          {"misses_total", lookups.misses_total},
          {"lost_misses_total", lookups.lost_misses_total},
          {"error_misses_total", lookups.error_misses_total},
          {"exhaustive_fallbacks_total", lookups.exhaustive_fallbacks_total},
          {"keys_probed_total", lookups.keys_probed_total},
          {"keys_leased_total", lookups.keys_leased_total}};
}

Json Mode(const ModeReport& mode, int64_t prompt_tokens) {
  return {{"lease", std::string(ToString(mode.lease))},
          {"hit_rate", Ratio(mode.hit_tokens, prompt_tokens)},
          {"hit_tokens", mode.hit_tokens},
          {"computed_tokens", mode.computed_tokens},
          {"requests_without_hit", mode.requests_without_hit},
          {"requests_with_partial_hit", mode.requests_with_partial_hit},
          {"requests_with_full_hit", mode.requests_with_full_hit},
          {"keys_probed_per_lookup", Distribution(mode.keys_probed)},
          {"keys_leased_per_lookup", Distribution(mode.keys_leased)},
          {"lookup_nanoseconds", Distribution(mode.lookup_nanoseconds)},
          {"lost", Lost(mode.lost)},
          {"puts_refused", mode.puts_refused},
          {"puts_skipped", mode.puts_skipped},
          {"lookups", Lookups(mode.lookups)},
          {"pool", Pool(mode.pool)}};
}

Json Run(const ReplayRun& run) {
  const ReplayReport& report = run.report;
  Json modes = Json::array();
  for (const ModeReport& mode : report.modes) modes.push_back(Mode(mode, report.prompt_tokens));
  return {{"trace", run.trace},
          {"incomplete", run.incomplete},
          {"options", Options(*run.options)},
          {"requests", report.requests},
          {"prompt_tokens", report.prompt_tokens},
          {"output_tokens", report.output_tokens},
          {"reusable_tokens", report.reusable_tokens},
          {"reusable_rate", Ratio(report.reusable_tokens, report.prompt_tokens)},
          {"tail_not_cacheable_tokens", report.tail_not_cacheable_tokens},
          {"duration_ms", report.duration_ms},
          {"distinct_blocks", report.distinct_blocks},
          {"audit_bytes", report.audit_bytes.value()},
          {"slab_bytes", report.slab_bytes.value()},
          {"modes", std::move(modes)}};
}

}  // namespace

std::string RenderJson(std::span<const ReplayRun> runs) {
  Json list = Json::array();
  for (const ReplayRun& run : runs) list.push_back(Run(run));
  const Json json = {{"format", "tenure-replay"}, {"version", kFormatVersion}, {"runs", std::move(list)}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace tenure::sim
