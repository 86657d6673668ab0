#include "tenure/handoff/mismatch_board.h"

#include <nlohmann/json.hpp>

#include "tenure/base/status.h"

namespace tenure::handoff {
namespace {

using Json = nlohmann::json;

Json Seconds(std::optional<double> seconds) { return seconds ? Json(*seconds) : Json(nullptr); }

}  // namespace

void MismatchBoard::Add(const std::vector<pd::LeaseMismatch>& mismatches) {
  MutexLock lock(mutex_);
  for (const pd::LeaseMismatch& mismatch : mismatches) {
    ++total_;
    Entry entry{.peer = mismatch.peer,
                .prefill_seconds = mismatch.prefill_seconds,
                .decode_seconds = mismatch.decode_seconds,
                .transfer_id = std::nullopt};
    if (mismatch.transfer_ids.empty()) entries_.push_back(entry);
    for (const std::string& transfer_id : mismatch.transfer_ids) {
      entry.transfer_id = transfer_id;
      entries_.push_back(entry);
    }
    while (entries_.size() > kShownMax) entries_.pop_front();
  }
}

std::string MismatchBoard::ToJson() const {
  Json shown = Json::array();
  MutexLock lock(mutex_);
  for (const Entry& entry : entries_) {
    const absl::Status status = pd::CheckLeaseAgreement(entry.prefill_seconds, entry.decode_seconds);
    Json& object = shown.emplace_back(Json{{"peer", entry.peer},
                                           {"prefill_seconds", Seconds(entry.prefill_seconds)},
                                           {"decode_seconds", Seconds(entry.decode_seconds)},
                                           {"text", std::string(Message(status))}});
    if (entry.transfer_id) object["transfer_id"] = *entry.transfer_id;
  }
  const Json page = {{"total", total_}, {"mismatches", std::move(shown)}};
  // Texts of peers: whatever they hold, this throws nothing.
  return page.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace tenure::handoff
