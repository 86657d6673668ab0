// Random configurations and presence sets for property tests, and the count of how many were worth testing.
//
// A case depends on its Random only, so a printed seed repeats it. For tests; one thread.
#pragma once

#include <cstdint>
#include <string>

#include "tenure/base/random.h"
#include "tenure/kv/cache_config.h"
#include "tenure/kv/coordinator_testing.h"

namespace tenure::kv::testing {

struct RandomCase {
  CacheConfig::Options options;  // As given to CacheConfig::Create, which accepts them.
  int64_t num_tokens = 0;        // At least the tokens that the hashes cover in most cases, below in some.
  PresenceSet presence;
};

// One to five groups of every kind, several block sizes, equal specs, eagle by flag or for all, fine mode.
CacheConfig::Options RandomOptions(Random& random);
// All present, prefixes, what a saver leaves, or noise; with and without holes. Indices that can never be keys are
// rare.
PresenceSet RandomPresence(Random& random, const CacheConfig& config, int64_t num_hashes);
// 1 to 64 hash units, in one case of 1,000 up to 4,096.
RandomCase MakeRandomCase(Random& random);

// The configuration that `options` describe; they must be valid.
CacheConfig MustCreate(CacheConfig::Options options);

// A chunk of a full-attention or chunked group is missing before a later one of the same group.
bool HasHole(const CacheConfig& config, const PresenceSet& presence);

// How many cases of a property exercised what it is about. A property prints it and fails when it is not Enough().
class CaseCounts {
 public:
  // A partial hit is above 0 and below `hit_max`, the longest that the prompt allows.
  void Count(const CacheConfig& config, const PresenceSet& presence, int64_t hit, int64_t hit_max);
  // Each kind at least one case in 20.
  bool Enough() const;
  std::string ToString() const;

 private:
  int64_t cases_ = 0;
  int64_t holes_ = 0;
  int64_t eagles_ = 0;
  int64_t partial_hits_ = 0;
};

// All of a case in one line, for the message of a failed test.
std::string Describe(const RandomCase& random_case);

}  // namespace tenure::kv::testing
