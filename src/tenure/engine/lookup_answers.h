// What each waiting request's lookup has answered, and what is to be asked next: the state machine behind
// BackgroundLookups, without threads, locks or a pool.
//
// The first Ask of a request queues one search. Its answer stays with its lease until Forget, and the lease is renewed
// while less than half of it is left. A request that does not hear in time counts a miss. Design §6. One thread at a
// time.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tenure/base/clock.h"
#include "tenure/base/units.h"
#include "tenure/connector/hash_source.h"
#include "tenure/connector/lookup.h"
#include "tenure/kv/hit.h"
#include "tenure/store/lease.h"

namespace tenure::engine {

// Sums over all requests. Every search ends as one of the hit, the four misses or unwanted.
struct LookupTotals {
  int64_t searches = 0;
  int64_t hits = 0;
  int64_t hit_tokens = 0;
  int64_t misses = 0;           // Nothing to load, by what the pool said.
  int64_t misses_lost = 0;      // Keys went faster than they could be leased.
  int64_t misses_error = 0;     // The pool or the list of hashes failed.
  int64_t misses_deadline = 0;  // No answer in time.
  int64_t hits_expired = 0;     // Hits that became misses, since their lease could not be renewed in time.
  int64_t unwanted = 0;         // The request was gone, or was another, before its answer.
  int64_t renewals = 0;
  int64_t renewals_lost = 0;  // A key was gone.
  int64_t renewals_error = 0;
};

class LookupAnswers {
 public:
  struct Options {
    absl::Duration deadline = absl::Seconds(1);  // From the first Ask of a query to its miss.
    // Shares of the lease that the pool granted.
    double renew_below = 0.5;   // Less than this is left: renew.
    double start_above = 0.25;  // Less than this is left: no answer until it is renewed.
  };
  // Null: not yet. Length 0: a miss.
  using Answer = std::shared_ptr<const kv::Hit>;
  using Hashes = std::shared_ptr<const connector::HashSource>;

  struct Query {
    Hashes hashes;
    Tokens num_tokens;
  };
  struct Search {
    std::string request;
    uint64_t ticket = 0;
    Query query;
  };
  struct Renewal {
    std::string request;
    uint64_t ticket = 0;
    Hashes hashes;
    Answer hit;
  };
  // What a call let go of. Its end may reach a pool, or the owner of a list: end it outside of locks.
  struct Dropped {
    std::vector<store::Lease> leases;
    std::vector<Hashes> hashes;
  };

  explicit LookupAnswers(Options options) : options_(options) {}

  // The same query again gives the same answer; another number of tokens or of hashes starts anew.
  Answer Ask(const std::string& request, const Query& query, MonotonicTime now, Dropped& dropped);
  // Nothing is kept of the request; a search under way is unwanted.
  void Forget(const std::string& request, Dropped& dropped);
  void ForgetAll(Dropped& dropped);

  // The next search that is still wanted, in the order of the asks.
  std::optional<Search> NextSearch(MonotonicTime now);
  void EndSearch(const Search& search, connector::LookupResult result, MonotonicTime now, Dropped& dropped);

  std::optional<Renewal> NextRenewal(MonotonicTime now);
  // When NextRenewal has something to do, unless something changes first; Max() for never.
  MonotonicTime next_renewal_at() const;
  // Nothing in `lease`: a key of the load set was gone.
  void EndRenewal(const Renewal& renewal, absl::StatusOr<std::optional<store::Lease>> lease, MonotonicTime now,
                  Dropped& dropped);

  // Whether the request waits for its search.
  bool IsSearching(const std::string& request) const;
  const LookupTotals& totals() const { return totals_; }
  // Requests with an answer or a search, to bound what is kept.
  size_t size() const { return entries_.size(); }
  // Searches that nobody has taken; some of them may be unwanted by now.
  size_t queued() const { return searches_.size(); }

 private:
  struct Entry {
    uint64_t ticket = 0;  // Of its search and renewals; what comes back under another one is late.
    Tokens num_tokens;
    int64_t num_hashes = 0;
    Hashes hashes;        // Not kept for a miss.
    MonotonicTime since;  // The first Ask that has had no answer yet.
    bool waiting = true;  // For a search, or for a lease that is long enough.
    Answer answer;
    std::vector<store::Lease> leases;
    MonotonicTime lease_deadline;
    MonotonicTime start_until;                      // Enough of the lease is left before this.
    MonotonicTime renew_at = MonotonicTime::Max();  // Also the key in renewals_.
  };
  using Entries = std::map<std::string, Entry, std::less<>>;

  void Answered(const std::string& request, Entry& entry, connector::LookupResult result, MonotonicTime now,
                Dropped& dropped);
  void Hold(const std::string& request, Entry& entry, std::vector<store::Lease> leases, MonotonicTime now,
            Dropped& dropped);
  void AnswerMiss(const std::string& request, Entry& entry, Dropped& dropped);
  // Takes searches away that nobody waits for any more, up to the first that is wanted: however long nobody takes the
  // next one, no more are kept than are asked for within the deadline.
  void DropUnwanted(MonotonicTime now);
  void RenewAt(const std::string& request, Entry& entry, MonotonicTime at);
  void Drop(Entries::iterator entry, Dropped& dropped);

  Options options_;
  uint64_t next_ticket_ = 1;
  Entries entries_;
  std::deque<std::pair<std::string, uint64_t>> searches_;  // Requests and tickets.
  std::set<std::pair<MonotonicTime, std::string>> renewals_;
  LookupTotals totals_;
};

}  // namespace tenure::engine
