// The daemon's pool in the conformance suite: a daemon in a thread of the test, and a client of it.
#pragma once

#include <vector>

#include "tests/conformance/pool_under_test.h"

namespace tenure::store::conformance {

std::vector<PoolFactory> DaemonPools();

}  // namespace tenure::store::conformance
