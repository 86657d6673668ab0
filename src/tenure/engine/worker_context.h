// What the loader and the saver of one worker share. All of it outlives them.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "tenure/base/clock.h"
#include "tenure/base/units.h"
#include "tenure/connector/key_batch.h"
#include "tenure/engine/block_memory.h"
#include "tenure/engine/copier.h"
#include "tenure/engine/worker_report.h"
#include "tenure/kv/cache_config.h"
#include "tenure/store/pool.h"

namespace tenure::engine {

struct WorkerContext {
  const kv::CacheConfig& config;
  store::Pool& pool;
  const BlockMemory& memory;
  // This rank's, a list a group and a namespace a shard of `memory`.
  const connector::GroupNamespaces& namespaces;
  Copier& copier;
  ReportBox& reports;
  const Clock& clock;
  int32_t tp_rank = 0;
  Bytes batch_bytes;  // Of one call of the pool that moves bytes, and so of staging memory.
};

}  // namespace tenure::engine
