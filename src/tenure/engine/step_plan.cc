#include "tenure/engine/step_plan.h"

#include <cstddef>
#include <span>

#include "tenure/base/status.h"
#include "tenure/daemon/wire_archive.h"

namespace tenure::engine {
namespace {

// The first byte of a plan. Scheduler and workers are one release; another value is a mix of two.
constexpr uint8_t kFormat = 2;

// Bytes that the smallest item of each kind takes, so that a count asks for no more memory than its items' bytes.
constexpr size_t kTextBytesMin = 2;
constexpr size_t kHashBytesMin = 1 + 16;
constexpr size_t kBlockBytes = 4;
constexpr size_t kListBytesMin = 4;
constexpr size_t kLoadChunkBytesMin = 4 + kBlockBytes + kHashBytesMin;
constexpr size_t kBoundaryPutBytes = 4 + kBlockBytes + 8;
constexpr size_t kLoadOrderBytesMin = kTextBytesMin + 8 + 8 + kListBytesMin + 1;
constexpr size_t kSaveOrderBytesMin = 8 + kTextBytesMin + 8 + 8 + 8 + 3 * kListBytesMin + 8 + kListBytesMin;
// Counts are bounded by the bytes of the plan alone.
constexpr size_t kItemsMax = UINT32_MAX;

void Group(daemon::WireWriter& archive, kv::GroupIndex group) { archive.Number(group.value()); }
void Group(daemon::WireReader& archive, kv::GroupIndex& group) {
  int32_t number = 0;
  archive.Number(number);
  group = kv::GroupIndex(number);
}

void Texts(auto& archive, auto& texts) {
  archive.List(texts, kItemsMax, kTextBytesMin, [](auto& items, auto& text) { items.Text(text, kRequestIdBytesMax); });
}
void Blocks(auto& archive, auto& blocks) {
  archive.List(blocks, kItemsMax, kBlockBytes, [](auto& items, auto& block) { items.Number(block); });
}

void Chunk(auto& archive, auto& chunk) {
  Group(archive, chunk.group);
  archive.Number(chunk.block);
  archive.Hash(chunk.hash);
}
void Flag(daemon::WireWriter& archive, bool flag) { archive.Number(static_cast<uint8_t>(flag ? 1 : 0)); }
void Flag(daemon::WireReader& archive, bool& flag) {
  uint8_t number = 0;
  archive.Number(number);
  archive.Require(number <= 1);
  flag = number == 1;
}

void Load(auto& archive, auto& load) {
  archive.Text(load.request, kRequestIdBytesMax);
  archive.Number(load.local);
  archive.Number(load.length);
  archive.List(load.chunks, kItemsMax, kLoadChunkBytesMin, [](auto& items, auto& chunk) { Chunk(items, chunk); });
  Flag(archive, load.refused);
}
void Put(auto& archive, auto& put) {
  Group(archive, put.group);
  archive.Number(put.block);
  archive.Number(put.tokens);
}
void Save(auto& archive, auto& save) {
  archive.Number(save.job);
  archive.Text(save.request, kRequestIdBytesMax);
  archive.Number(save.length);
  archive.Number(save.prefill_end);
  archive.Number(save.first_hash);
  archive.List(save.hashes, kItemsMax, kHashBytesMin, [](auto& items, auto& hash) { items.Hash(hash); });
  archive.List(save.blocks, kItemsMax, kListBytesMin, [](auto& items, auto& blocks) { Blocks(items, blocks); });
  archive.List(save.boundary_puts, kItemsMax, kBoundaryPutBytes, [](auto& items, auto& put) { Put(items, put); });
  archive.Number(save.tokens.start);
  archive.List(save.tokens.ids, kItemsMax, 4, [](auto& items, auto& id) { items.Number(id); });
}
void Plan(auto& archive, auto& plan) {
  archive.List(plan.loads, kItemsMax, kLoadOrderBytesMin, [](auto& items, auto& load) { Load(items, load); });
  archive.List(plan.saves, kItemsMax, kSaveOrderBytesMin, [](auto& items, auto& save) { Save(items, save); });
  Texts(archive, plan.preempted);
  Texts(archive, plan.finished);
}

}  // namespace

std::string EncodeStepPlan(const StepPlan& plan) {
  std::vector<std::byte> bytes;
  daemon::WireWriter writer(bytes);
  writer.Number(kFormat);
  Plan(writer, plan);
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

absl::StatusOr<StepPlan> DecodeStepPlan(std::string_view bytes) {
  daemon::WireReader reader(std::as_bytes(std::span(bytes)));
  uint8_t format = 0;
  reader.Number(format);
  if (!reader.failed() && format != kFormat) {
    return InvalidArgument("plan has format {}; this release reads {}: run one release everywhere", format, kFormat);
  }
  StepPlan plan;
  Plan(reader, plan);
  if (!reader.Complete()) {
    return InvalidArgument("plan: {} bytes that are no step plan; pass the scheduler's as they are", bytes.size());
  }
  return plan;
}

}  // namespace tenure::engine
