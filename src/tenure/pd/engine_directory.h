// Where D has found the workers of prefill engines (pd_protocol spec §2, edges 23, 24, 26).
//
// Only engines whose workers have all registered are kept: P that tells its sizes is measured by them, a stock P by its
// ranks having no holes. One thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tenure/pd/bootstrap_registry.h"

namespace tenure::pd {

class EngineDirectory {
 public:
  struct Engine {
    RegisteredEngine registered;
    int64_t tp_size;
    int64_t pp_size;
    uint64_t generation;  // New with each entry whose workers or settings are others.
    uint64_t last_used;
  };

  explicit EngineDirectory(size_t engines_max) : engines_max_(engines_max) {}

  // Keeps the complete engines of a query's answer. A smaller incarnation than the one known is passed over. Returns
  // the engines whose workers changed. At `engines_max` the one that was used longest ago makes room.
  std::vector<std::string> Learn(const std::map<int64_t, RegisteredEngine>& answer);
  // Null: to be asked for. Valid until the next Learn or Evict.
  const Engine* Find(std::string_view engine_id);
  // A worker of this entry did not answer. Does nothing to a newer entry.
  void Evict(std::string_view engine_id, uint64_t generation);

  size_t size() const { return engines_.size(); }

 private:
  size_t engines_max_;
  uint64_t last_generation_ = 0;
  uint64_t uses_ = 0;
  std::map<std::string, Engine, std::less<>> engines_;
};

}  // namespace tenure::pd
