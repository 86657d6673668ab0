#include "tenure/handoff/bootstrap_json.h"

#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "tenure/base/parse.h"
#include "tenure/base/status.h"
#include "tenure/base/text.h"
#include "tenure/pd/wire_fields.h"

namespace tenure::handoff {
namespace {

using Json = nlohmann::json;
using pd::BootstrapRegistry;
using pd::RegisteredEngine;
using pd::WorkerRegistration;

constexpr size_t kDetailBytesMax = 500;

// Never throws, whatever a text holds.
std::string Dump(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

absl::StatusOr<Json> ParseObject(std::string_view what, std::string_view text, size_t bytes_max) {
  if (text.size() > bytes_max) {
    return InvalidArgument("{} has {} bytes; use at most {}", what, text.size(), bytes_max);
  }
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return InvalidArgument("{} is no JSON object; send the documented fields", what);
  return json;
}

const Json* Find(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

absl::Status ReadText(const Json& object, const char* name, std::string& text) {
  const Json* value = Find(object, name);
  if (value == nullptr) return InvalidArgument("{} is missing; give a text", name);
  if (!value->is_string()) return InvalidArgument("{} is no text; give one", name);
  text = value->get_ref<const std::string&>();
  return pd::CheckText(name, text);
}

absl::Status ReadWhole(const Json& object, const char* name, std::optional<int64_t>& number) {
  const Json* value = Find(object, name);
  if (value == nullptr) return absl::OkStatus();
  const bool fits = value->is_number_integer() &&
                    (!value->is_number_unsigned() || value->get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX));
  if (!fits) return InvalidArgument("{} is no whole number; give one", name);
  number = value->get<int64_t>();
  return absl::OkStatus();
}

absl::Status ReadRank(const Json& object, const char* name, int64_t& rank) {
  std::optional<int64_t> number;
  TENURE_RETURN_IF_ERROR(ReadWhole(object, name, number));
  if (!number) return InvalidArgument("{} is missing; give a whole number", name);
  rank = *number;
  return absl::OkStatus();
}

// The additions, which a registration and an engine have alike.
template <typename Record>
absl::Status ReadAdditions(const Json& object, Record& record) {
  if (const Json* lease = Find(object, "kv_lease_duration")) {
    if (!lease->is_number()) return InvalidArgument("kv_lease_duration is no number; give seconds");
    record.kv_lease_duration = lease->get<double>();
  }
  TENURE_RETURN_IF_ERROR(ReadWhole(object, "incarnation", record.incarnation));
  TENURE_RETURN_IF_ERROR(ReadWhole(object, "tp_size", record.tp_size));
  return ReadWhole(object, "pp_size", record.pp_size);
}

template <typename Record>
void WriteAdditions(const Record& record, Json& object) {
  if (record.kv_lease_duration) object["kv_lease_duration"] = *record.kv_lease_duration;
  if (record.incarnation) object["incarnation"] = *record.incarnation;
  if (record.tp_size) object["tp_size"] = *record.tp_size;
  if (record.pp_size) object["pp_size"] = *record.pp_size;
}

absl::StatusOr<int64_t> ReadKey(const char* what, const std::string& key) {
  return ParseCount(what, key, 0, BootstrapRegistry::kRanksMax - 1);
}

absl::Status CheckSize(const char* name, std::optional<int64_t> size) {
  if (!size || (*size >= 1 && *size <= BootstrapRegistry::kRanksMax)) return absl::OkStatus();
  return InvalidArgument("{} is {}; use 1 to {}", name, *size, BootstrapRegistry::kRanksMax);
}

absl::Status ReadStages(const Json& stages, std::map<int64_t, std::string>& addresses) {
  if (!stages.is_object()) return InvalidArgument("worker_addr holds a tp rank without a map of pp ranks; give one");
  for (const auto& [key, address] : stages.items()) {
    TENURE_ASSIGN_OR_RETURN(const int64_t pp_rank, ReadKey("worker_addr: a pp rank", key));
    if (!address.is_string())
      return InvalidArgument("worker_addr holds an address that is no text; give tcp://IP:PORT");
    TENURE_RETURN_IF_ERROR(pd::CheckText("worker_addr", address.template get_ref<const std::string&>()));
    if (!addresses.emplace(pp_rank, address.template get<std::string>()).second) {
      return InvalidArgument("worker_addr names pp rank {} twice; name it once", pp_rank);
    }
  }
  return absl::OkStatus();
}

absl::Status ReadEngine(const Json& object, size_t& workers, RegisteredEngine& engine) {
  if (!object.is_object()) return InvalidArgument("an engine is no JSON object; give engine_id and worker_addr");
  TENURE_RETURN_IF_ERROR(ReadText(object, "engine_id", engine.engine_id));
  TENURE_RETURN_IF_ERROR(ReadAdditions(object, engine));
  TENURE_RETURN_IF_ERROR(pd::CheckLease("query", engine.kv_lease_duration));
  TENURE_RETURN_IF_ERROR(CheckSize("tp_size", engine.tp_size));
  TENURE_RETURN_IF_ERROR(CheckSize("pp_size", engine.pp_size));
  const Json* ranks = Find(object, "worker_addr");
  if (ranks == nullptr || !ranks->is_object()) return InvalidArgument("worker_addr is no map of tp ranks; give one");
  for (const auto& [key, stages] : ranks->items()) {
    TENURE_ASSIGN_OR_RETURN(const int64_t tp_rank, ReadKey("worker_addr: a tp rank", key));
    if (engine.addresses.contains(tp_rank)) {
      return InvalidArgument("worker_addr names tp rank {} twice; name it once", tp_rank);
    }
    TENURE_RETURN_IF_ERROR(ReadStages(stages, engine.addresses[tp_rank]));
    workers += engine.addresses[tp_rank].size();
    if (workers > BootstrapRegistry::kWorkersMax) {
      return InvalidArgument("worker_addr names more than {} workers; use another bootstrap server",
                             BootstrapRegistry::kWorkersMax);
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::string EncodeRegistration(const WorkerRegistration& worker) {
  Json object = {{"engine_id", worker.engine_id},
                 {"dp_rank", worker.dp_rank},
                 {"tp_rank", worker.tp_rank},
                 {"pp_rank", worker.pp_rank},
                 {"addr", worker.address}};
  WriteAdditions(worker, object);
  return Dump(object);
}

absl::StatusOr<WorkerRegistration> DecodeRegistration(std::string_view text) {
  TENURE_ASSIGN_OR_RETURN(const Json object, ParseObject("the registration", text, kRegistrationBytesMax));
  WorkerRegistration worker;
  TENURE_RETURN_IF_ERROR(ReadText(object, "engine_id", worker.engine_id));
  TENURE_RETURN_IF_ERROR(ReadRank(object, "dp_rank", worker.dp_rank));
  TENURE_RETURN_IF_ERROR(ReadRank(object, "tp_rank", worker.tp_rank));
  TENURE_RETURN_IF_ERROR(ReadRank(object, "pp_rank", worker.pp_rank));
  TENURE_RETURN_IF_ERROR(ReadText(object, "addr", worker.address));
  TENURE_RETURN_IF_ERROR(ReadAdditions(object, worker));
  return worker;
}

std::string EncodeEngines(const RegisteredEngines& engines) {
  Json answer = Json::object();
  for (const auto& [dp_rank, engine] : engines) {
    Json ranks = Json::object();
    for (const auto& [tp_rank, stages] : engine.addresses) {
      Json& by_stage = ranks[std::to_string(tp_rank)] = Json::object();
      for (const auto& [pp_rank, address] : stages) by_stage[std::to_string(pp_rank)] = address;
    }
    Json& object =
        answer[std::to_string(dp_rank)] = {{"engine_id", engine.engine_id}, {"worker_addr", std::move(ranks)}};
    WriteAdditions(engine, object);
  }
  return Dump(answer);
}

absl::StatusOr<RegisteredEngines> DecodeEngines(std::string_view text) {
  TENURE_ASSIGN_OR_RETURN(const Json object, ParseObject("the answer to a query", text, kEnginesBytesMax));
  RegisteredEngines engines;
  size_t workers = 0;
  for (const auto& [key, engine] : object.items()) {
    TENURE_ASSIGN_OR_RETURN(const int64_t dp_rank, ReadKey("a dp rank", key));
    if (engines.contains(dp_rank)) return InvalidArgument("dp rank {} comes twice; name it once", dp_rank);
    TENURE_RETURN_IF_ERROR(ReadEngine(engine, workers, engines[dp_rank]));
  }
  return engines;
}

std::string EncodeDetail(std::string_view detail) { return Dump({{"detail", detail}}); }

std::string DecodeDetail(std::string_view body) {
  const Json json = Json::parse(body.substr(0, kRegistrationBytesMax), nullptr, /*allow_exceptions=*/false);
  const Json* detail = json.is_object() ? Find(json, "detail") : nullptr;
  // A stock server says why in a list of objects.
  const std::string text = detail == nullptr     ? std::string(body)
                           : detail->is_string() ? detail->get<std::string>()
                                                 : Dump(*detail);
  return OneLine(text, kDetailBytesMax);
}

}  // namespace tenure::handoff
