#include "tenure/pd/remembered_ends.h"

namespace tenure::pd {

void RememberedEnds::Remember(std::string_view transfer_id, HandoffEnd end, MonotonicTime now) {
  Forget(transfer_id);
  order_.push_back({std::string(transfer_id), end, now});
  by_id_[order_.back().transfer_id] = std::prev(order_.end());
  if (order_.size() > count_max_) Forget(order_.front().transfer_id);
}

void RememberedEnds::Forget(std::string_view transfer_id) {
  const auto found = by_id_.find(transfer_id);
  if (found == by_id_.end()) return;
  const auto place = found->second;
  by_id_.erase(found);  // Before the text that its key is a view of.
  order_.erase(place);
}

std::optional<HandoffEnd> RememberedEnds::Find(std::string_view transfer_id) const {
  const auto found = by_id_.find(transfer_id);
  if (found == by_id_.end()) return std::nullopt;
  return found->second->end;
}

void RememberedEnds::Prune(MonotonicTime now) {
  while (!order_.empty() && now - order_.front().at >= age_max_) Forget(order_.front().transfer_id);
}

}  // namespace tenure::pd
