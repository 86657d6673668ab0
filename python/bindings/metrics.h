// The figures of a pool for Python: names as in docs/reference/python.md, base unit last, _total for what never falls.
#pragma once

#include <nanobind/nanobind.h>

#include "tenure/store/pool.h"

namespace tenure::python {

nanobind::dict ToDict(const store::PoolStats& stats);

}  // namespace tenure::python
