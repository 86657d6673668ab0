#include "tenure/pd/engine_directory.h"

#include <algorithm>
#include <utility>

namespace tenure::pd {
namespace {

// The engine with its sizes when every worker is there.
std::optional<EngineDirectory::Engine> Completed(const RegisteredEngine& registered) {
  if (registered.IsPartial() || registered.addresses.empty()) return std::nullopt;
  EngineDirectory::Engine engine;
  engine.registered = registered;
  engine.tp_size = registered.tp_size.value_or(static_cast<int64_t>(registered.addresses.size()));
  engine.pp_size = registered.pp_size.value_or(0);
  for (const auto& [tp_rank, by_pp] : registered.addresses) {
    if (!registered.pp_size) engine.pp_size = std::max(engine.pp_size, static_cast<int64_t>(by_pp.size()));
  }
  // Ranks start at 0 and come once, so a hole shows in the last rank or in the count.
  if (static_cast<int64_t>(registered.addresses.size()) != engine.tp_size) return std::nullopt;
  int64_t tp_expected = 0;
  for (const auto& [tp_rank, by_pp] : registered.addresses) {
    if (tp_rank != tp_expected++ || static_cast<int64_t>(by_pp.size()) != engine.pp_size) return std::nullopt;
    if (by_pp.begin()->first != 0 || by_pp.rbegin()->first != engine.pp_size - 1) return std::nullopt;
  }
  return engine;
}

}  // namespace

std::vector<std::string> EngineDirectory::Learn(const std::map<int64_t, RegisteredEngine>& answer) {
  std::vector<std::string> changed;
  for (const auto& [dp_rank, registered] : answer) {
    const auto known = engines_.find(registered.engine_id);
    if (known != engines_.end()) {
      // An absent incarnation is below every other.
      if (registered.incarnation < known->second.registered.incarnation) continue;
      if (registered == known->second.registered) continue;
    }
    std::optional<Engine> engine = Completed(registered);
    if (!engine) {
      // Of the same start, its bootstrap server has yet to hear all of them again; of a later one, the old are gone.
      if (known == engines_.end() || registered.incarnation == known->second.registered.incarnation) continue;
      engines_.erase(known);
      changed.push_back(registered.engine_id);
      continue;
    }
    if (known != engines_.end()) changed.push_back(registered.engine_id);
    engine->generation = ++last_generation_;
    engine->last_used = ++uses_;
    engines_.insert_or_assign(registered.engine_id, *std::move(engine));
  }
  while (engines_.size() > engines_max_) {
    engines_.erase(std::min_element(engines_.begin(), engines_.end(), [](const auto& a, const auto& b) {
      return a.second.last_used < b.second.last_used;
    }));
  }
  return changed;
}

const EngineDirectory::Engine* EngineDirectory::Find(std::string_view engine_id) {
  const auto found = engines_.find(engine_id);
  if (found == engines_.end()) return nullptr;
  found->second.last_used = ++uses_;
  return &found->second;
}

void EngineDirectory::Evict(std::string_view engine_id, uint64_t generation) {
  const auto found = engines_.find(engine_id);
  if (found != engines_.end() && found->second.generation == generation) engines_.erase(found);
}

}  // namespace tenure::pd
