// The daemon's figures in the text format that Prometheus reads (docs/reference/metrics.md explains each line). A pure
// function.
//
// A page of our own and not a library: every figure is a snapshot that is there already, and a registry would hold a
// second copy of each.
#pragma once

#include <string>

#include "tenure/daemon/daemon_stats.h"
#include "tenure/store/pool.h"

namespace tenure::daemon {

inline constexpr char kExpositionType[] = "text/plain; version=0.0.4; charset=utf-8";

std::string Expose(const store::PoolStats& pool, const DaemonStats& daemon);

}  // namespace tenure::daemon
