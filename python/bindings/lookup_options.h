// What everything that looks up in a pool takes from Python: how to search and to lease.
#pragma once

#include <string>

#include "tenure/connector/lookup.h"

namespace tenure::python {

// ValueError names the argument. lease_ttl is in seconds.
connector::LookupOptions LookupOptionsFrom(const std::string& search, const std::string& lease, double lease_ttl);

}  // namespace tenure::python
