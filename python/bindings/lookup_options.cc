#include "bindings/lookup_options.h"

#include "bindings/errors.h"
#include "tenure/base/status.h"

namespace tenure::python {

connector::LookupOptions LookupOptionsFrom(const std::string& search, const std::string& lease, double lease_ttl) {
  connector::LookupOptions options;
  if (search == "exhaustive") {
    options.mode = kv::SearchMode::kExhaustive;
  } else if (search != "tail_first") {
    Throw(InvalidArgument("search is \"{}\"; use tail_first or exhaustive", search.substr(0, 64)));
  }
  if (lease == "all") {
    options.lease = connector::LeaseMode::kAll;
  } else if (lease != "selective") {
    Throw(InvalidArgument("lease is \"{}\"; use selective or all", lease.substr(0, 64)));
  }
  options.lease_ttl = DurationFrom("lease_ttl", lease_ttl, store::Pool::kLeaseTtlMax);
  return options;
}

}  // namespace tenure::python
