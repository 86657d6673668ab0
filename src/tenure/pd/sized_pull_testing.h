// A prefill worker and a decode worker's pull of a chosen size, for benchmarks.
#pragma once

#include <cstdint>

#include "tenure/pd/kv_layout.h"
#include "tenure/pd/pull.h"

namespace tenure::pd {

struct PullSize {
  int64_t requests = 1;
  int64_t blocks = 16;     // Of each request.
  int64_t regions = 1;     // A layer each.
  int64_t run = 128;       // Blocks of a request whose ids follow one another; 128 of these make one piece a region.
  int64_t prefill_tp = 1;  // Ranks of P for one of D.
};

// 32 requests of 128 blocks, 64 layers: about 18 kB.
inline constexpr PullSize kPullOf32Requests = {.requests = 32, .blocks = 128, .regions = 64};

struct SizedPull {
  KvLayout prefill;
  KvTraits traits;
  Pull pull;  // Request i is of transfer i; its block ids serve as P's too.
};

SizedPull MakeSizedPull(const PullSize& size);

}  // namespace tenure::pd
