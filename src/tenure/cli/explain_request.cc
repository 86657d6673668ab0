#include "tenure/cli/explain_request.h"

#include <algorithm>
#include <exception>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "tenure/base/status.h"

namespace tenure::cli {
namespace {

using nlohmann::json;

constexpr size_t kShownBytesMax = 64;
constexpr size_t kKeyHashBytesMax = 64;

// A value as an error message shows it.
std::string Shown(const json& value) {
  if (value.is_array()) return fmt::format("a list of {}", value.size());
  if (value.is_object()) return fmt::format("an object of {}", value.size());
  std::string text = value.dump(-1, ' ', /*ensure_ascii=*/true, json::error_handler_t::replace);
  if (text.size() > kShownBytesMax) text = text.substr(0, kShownBytesMax) + "...";
  return text;
}

// The fields of one JSON object; `where` is put before their names, as in "groups[1].".
class Fields {
 public:
  Fields(const json& object, std::string where) : object_(object), where_(std::move(where)) {}

  std::string NameOf(std::string_view field) const { return fmt::format("{}{}", where_, field); }

  // Null and absent are the same.
  const json* Find(const char* field) const {
    const auto found = object_.find(field);
    return found == object_.end() || found->is_null() ? nullptr : &*found;
  }

  absl::StatusOr<const json*> Need(const char* field) const {
    const json* value = Find(field);
    if (value == nullptr) return InvalidArgument("{} is missing; see docs/reference/explain.md", NameOf(field));
    return value;
  }

  absl::StatusOr<int64_t> Integer(const char* field, int64_t low, int64_t high) const {
    TENURE_ASSIGN_OR_RETURN(const json* value, Need(field));
    return CheckInteger(NameOf(field), *value, low, high);
  }
  absl::StatusOr<std::optional<int64_t>> OptionalInteger(const char* field, int64_t low, int64_t high) const {
    const json* value = Find(field);
    if (value == nullptr) return std::optional<int64_t>();
    TENURE_ASSIGN_OR_RETURN(const int64_t integer, CheckInteger(NameOf(field), *value, low, high));
    return std::optional<int64_t>(integer);
  }

  absl::StatusOr<bool> Flag(const char* field, bool fallback) const {
    const json* value = Find(field);
    if (value == nullptr) return fallback;
    if (!value->is_boolean()) return InvalidArgument("{} is {}; use true or false", NameOf(field), Shown(*value));
    return value->get<bool>();
  }

  absl::StatusOr<std::string> Text(const char* field, std::optional<std::string> fallback = std::nullopt) const {
    const json* value = Find(field);
    if (value == nullptr && fallback.has_value()) return *std::move(fallback);
    TENURE_ASSIGN_OR_RETURN(value, Need(field));
    if (!value->is_string()) return InvalidArgument("{} is {}; use a text", NameOf(field), Shown(*value));
    return value->get<std::string>();
  }

  absl::StatusOr<const json*> List(const char* field) const {
    TENURE_ASSIGN_OR_RETURN(const json* value, Need(field));
    if (!value->is_array()) return InvalidArgument("{} is {}; use a list", NameOf(field), Shown(*value));
    return value;
  }

  static absl::StatusOr<int64_t> CheckInteger(const std::string& name, const json& value, int64_t low, int64_t high) {
    const bool fits = value.is_number_unsigned() ? value.get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX)
                                                 : value.is_number_integer();
    if (!fits || value.get<int64_t>() < low || value.get<int64_t>() > high) {
      return InvalidArgument("{} is {}; use a whole number from {} to {}", name, Shown(value), low, high);
    }
    return value.get<int64_t>();
  }

 private:
  const json& object_;
  std::string where_;
};

constexpr int64_t kTokensMax = kv::CacheConfig::kTokensMax;

absl::StatusOr<kv::GroupSpec> ReadGroup(const json& value, size_t index) {
  if (!value.is_object()) return InvalidArgument("groups[{}] is {}; use an object", index, Shown(value));
  const Fields fields(value, fmt::format("groups[{}].", index));
  kv::GroupSpec spec;
  TENURE_ASSIGN_OR_RETURN(const std::string kind, fields.Text("kind"));
  TENURE_ASSIGN_OR_RETURN(spec.kind, kv::ParseGroupKind(fields.NameOf("kind"), kind));
  TENURE_ASSIGN_OR_RETURN(const int64_t block_size, fields.Integer("block_size", 1, kTokensMax));
  spec.block_size = Tokens(block_size);
  if (spec.kind == kv::GroupKind::kWindow) {
    TENURE_ASSIGN_OR_RETURN(const int64_t window, fields.Integer("window", 1, kTokensMax));
    spec.window = Tokens(window);
  }
  if (spec.kind == kv::GroupKind::kChunked) {
    TENURE_ASSIGN_OR_RETURN(const int64_t chunk, fields.Integer("chunk", 1, kTokensMax));
    spec.chunk = Tokens(chunk);
  }
  TENURE_ASSIGN_OR_RETURN(spec.eagle, fields.Flag("eagle", false));
  return spec;
}

absl::StatusOr<kv::CacheConfig> ReadConfig(const Fields& fields) {
  kv::CacheConfig::Options options;
  TENURE_ASSIGN_OR_RETURN(const int64_t hash, fields.Integer("hash_block_size", 1, kTokensMax));
  TENURE_ASSIGN_OR_RETURN(const int64_t scheduler, fields.Integer("scheduler_block_size", 1, kTokensMax));
  options.hash_block_size = Tokens(hash);
  options.scheduler_block_size = Tokens(scheduler);
  TENURE_ASSIGN_OR_RETURN(options.fine, fields.Flag("fine", false));
  TENURE_ASSIGN_OR_RETURN(options.use_eagle, fields.Flag("use_eagle", false));
  TENURE_ASSIGN_OR_RETURN(const json* groups, fields.List("groups"));
  if (groups->size() > static_cast<size_t>(kv::CacheConfig::kGroupsMax)) {
    return InvalidArgument("groups is {}; use 1 to {}", Shown(*groups), kv::CacheConfig::kGroupsMax);
  }
  for (const json& group : *groups) {
    TENURE_ASSIGN_OR_RETURN(const kv::GroupSpec spec, ReadGroup(group, options.groups.size()));
    options.groups.push_back(spec);
  }
  return kv::CacheConfig::Create(std::move(options));
}

// Tokens of at most kExplainHashesMax hash units.
absl::StatusOr<Tokens> ReadLength(const Fields& fields, const kv::CacheConfig& config, const char* field) {
  const int64_t hash = config.hash_block_size().value();
  const int64_t units_max = std::min(kExplainHashesMax, kTokensMax / hash);
  TENURE_ASSIGN_OR_RETURN(const int64_t length, fields.Integer(field, 0, units_max * hash));
  return Tokens(length);
}

absl::StatusOr<Tokens> ReadMaskLength(const Fields& fields, const kv::CacheConfig& config) {
  TENURE_ASSIGN_OR_RETURN(const Tokens length, ReadLength(fields, config, "length"));
  int64_t chunks = 0;
  for (const kv::GroupSpec& spec : config.groups()) chunks += CeilDiv(length, spec.block_size);
  if (chunks > kExplainMaskChunksMax) {
    return InvalidArgument("length is {}, which is {} chunks over all groups; use at most {}", length.value(), chunks,
                           kExplainMaskChunksMax);
  }
  return length;
}

absl::StatusOr<ExplainRequest> ReadStoreMask(const Fields& fields) {
  TENURE_ASSIGN_OR_RETURN(kv::CacheConfig config, ReadConfig(fields));
  kv::StoreQuery query;
  TENURE_ASSIGN_OR_RETURN(query.length, ReadMaskLength(fields, config));
  if (query.length % config.hit_alignment() != Tokens()) {
    return InvalidArgument("length is {}; use a multiple of the hit alignment {}", query.length.value(),
                           config.hit_alignment().value());
  }
  TENURE_ASSIGN_OR_RETURN(const std::optional<int64_t> start, fields.OptionalInteger("start", 0, kTokensMax));
  query.start = Tokens(start.value_or(0));
  TENURE_ASSIGN_OR_RETURN(const std::optional<int64_t> prompt,
                          fields.OptionalInteger("num_prompt_tokens", 1, kTokensMax));
  if (prompt.has_value()) query.num_prompt_tokens = Tokens(*prompt);
  TENURE_ASSIGN_OR_RETURN(const std::optional<int64_t> retention, fields.OptionalInteger("retention", 0, kTokensMax));
  if (retention.has_value()) query.retention = Tokens(*retention);
  if (retention.value_or(0) % config.scheduler_block_size().value() != 0) {
    return InvalidArgument("retention is {}; use null, 0 or a multiple of scheduler_block_size {}", *retention,
                           config.scheduler_block_size().value());
  }
  return StoreMaskRequest{std::move(config), query};
}

absl::StatusOr<ExplainRequest> ReadLookupMask(const Fields& fields) {
  TENURE_ASSIGN_OR_RETURN(kv::CacheConfig config, ReadConfig(fields));
  TENURE_ASSIGN_OR_RETURN(const Tokens length, ReadMaskLength(fields, config));
  return LookupMaskRequest{std::move(config), length};
}

absl::StatusOr<ExplainRequest> ReadLoadMask(const Fields& fields) {
  TENURE_ASSIGN_OR_RETURN(kv::CacheConfig config, ReadConfig(fields));
  TENURE_ASSIGN_OR_RETURN(const Tokens length, ReadMaskLength(fields, config));
  return LoadMaskRequest{std::move(config), length};
}

absl::StatusOr<PresentBits> ReadPresent(const Fields& fields, const kv::CacheConfig& config, int64_t num_hashes) {
  TENURE_ASSIGN_OR_RETURN(const json* present, fields.List("present"));
  const auto groups = static_cast<int64_t>(config.groups().size());
  if (static_cast<int64_t>(present->size()) != groups) {
    return InvalidArgument("present is {}; give one list for each of the {} groups", Shown(*present), groups);
  }
  if (num_hashes * groups > kExplainPresenceMax) {
    return InvalidArgument("num_hashes is {}; use at most {} with {} groups", num_hashes, kExplainPresenceMax / groups,
                           groups);
  }
  PresentBits bits;
  for (const json& indices : *present) {
    const size_t group = bits.size();
    if (!indices.is_array()) return InvalidArgument("present[{}] is {}; use a list", group, Shown(indices));
    bits.emplace_back(static_cast<size_t>(num_hashes), false);
    for (size_t i = 0; i < indices.size(); ++i) {
      // The name is made only for an error: a list may have millions.
      const json& index = indices[i];
      if (!index.is_number_integer() || index.get<int64_t>() < 0 || index.get<int64_t>() >= num_hashes) {
        return InvalidArgument("present[{}][{}] is {}; use a hash index from 0 to num_hashes - 1 = {}", group, i,
                               Shown(index), num_hashes - 1);
      }
      bits[group][index.get<size_t>()] = true;
    }
  }
  return bits;
}

absl::StatusOr<ExplainRequest> ReadHit(const Fields& fields) {
  TENURE_ASSIGN_OR_RETURN(kv::CacheConfig config, ReadConfig(fields));
  TENURE_ASSIGN_OR_RETURN(const int64_t num_hashes, fields.Integer("num_hashes", 0, kExplainHashesMax));
  TENURE_ASSIGN_OR_RETURN(const Tokens length_max, ReadLength(fields, config, "max_length"));
  TENURE_ASSIGN_OR_RETURN(const bool apply_eagle, fields.Flag("apply_eagle", true));
  TENURE_ASSIGN_OR_RETURN(PresentBits present, ReadPresent(fields, config, num_hashes));
  return HitRequest{std::move(config), num_hashes, length_max, apply_eagle, std::move(present)};
}

absl::StatusOr<kv::SearchMode> ReadMode(const Fields& fields) {
  TENURE_ASSIGN_OR_RETURN(const std::string mode, fields.Text("mode", "tail-first"));
  if (mode == "exhaustive") return kv::SearchMode::kExhaustive;
  if (mode == "tail-first") return kv::SearchMode::kTailFirst;
  return InvalidArgument("mode is {}; use exhaustive or tail-first", Shown(mode));
}

absl::StatusOr<ExplainRequest> ReadLookup(const Fields& fields) {
  TENURE_ASSIGN_OR_RETURN(kv::CacheConfig config, ReadConfig(fields));
  TENURE_ASSIGN_OR_RETURN(const int64_t num_hashes, fields.Integer("num_hashes", 0, kExplainHashesMax));
  TENURE_ASSIGN_OR_RETURN(const Tokens num_tokens, ReadLength(fields, config, "num_tokens"));
  TENURE_ASSIGN_OR_RETURN(const std::optional<int64_t> ranks, fields.OptionalInteger("ranks", 1, kExplainRanksMax));
  TENURE_ASSIGN_OR_RETURN(const kv::SearchMode mode, ReadMode(fields));
  const int64_t parts = ranks.value_or(1) * static_cast<int64_t>(config.groups().size());
  if (num_hashes * parts > kExplainKeysMax) {
    return InvalidArgument("num_hashes is {}; use at most {} with {} groups and {} ranks", num_hashes,
                           kExplainKeysMax / parts, config.groups().size(), ranks.value_or(1));
  }
  TENURE_ASSIGN_OR_RETURN(PresentBits present, ReadPresent(fields, config, num_hashes));
  return LookupRequest{std::move(config), num_hashes, num_tokens, ranks.value_or(1), mode, std::move(present)};
}

absl::StatusOr<std::string> ReadKeyHash(const json& value, size_t index) {
  const auto refuse = [&value, index] {
    return InvalidArgument("hashes[{}] is {}; use 1 to {} bytes as hexadecimal digits", index, Shown(value),
                           kKeyHashBytesMax);
  };
  if (!value.is_string()) return refuse();
  std::string hex = value.get<std::string>();
  if (hex.empty() || hex.size() % 2 != 0 || hex.size() > 2 * kKeyHashBytesMax) return refuse();
  for (char& digit : hex) {
    if (digit >= 'A' && digit <= 'F') digit = static_cast<char>(digit - 'A' + 'a');
    if (!((digit >= '0' && digit <= '9') || (digit >= 'a' && digit <= 'f'))) return refuse();
  }
  return hex;
}

absl::StatusOr<ExplainRequest> ReadKeys(const Fields& fields) {
  KeysRequest request;
  TENURE_ASSIGN_OR_RETURN(const std::string model, fields.Text("model"));
  request.names.model = kv::ModelName(model);
  TENURE_ASSIGN_OR_RETURN(request.names.cache_prefix, fields.Text("cache_prefix", ""));
  TENURE_ASSIGN_OR_RETURN(request.names.store_namespace, fields.Text("namespace", ""));
  TENURE_RETURN_IF_ERROR(kv::CheckKeyNames(request.names));
  const std::pair<const char*, int64_t*> ranks[] = {{"tp_rank", &request.rank.tp},
                                                    {"pcp_rank", &request.rank.pcp},
                                                    {"dcp_rank", &request.rank.dcp},
                                                    {"pp_rank", &request.rank.pp}};
  for (const auto& [field, rank] : ranks) {
    TENURE_ASSIGN_OR_RETURN(const std::optional<int64_t> value, fields.OptionalInteger(field, 0, INT32_MAX));
    *rank = value.value_or(0);
  }
  TENURE_ASSIGN_OR_RETURN(const int64_t group, fields.Integer("group", 0, INT32_MAX));
  request.group = kv::GroupIndex(static_cast<int32_t>(group));
  TENURE_ASSIGN_OR_RETURN(const json* hashes, fields.List("hashes"));
  for (const json& value : *hashes) {
    TENURE_ASSIGN_OR_RETURN(std::string hash, ReadKeyHash(value, request.hashes.size()));
    request.hashes.push_back(std::move(hash));
  }
  return request;
}

// A JSON value takes 16 bytes and more in memory, so their number and depth are bounded before they are built.
absl::Status CheckShape(std::string_view line) {
  int64_t values = 1;
  int depth = 0;
  bool in_text = false;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (in_text) {
      if (c == '\\') ++i;
      in_text = c != '"';
      continue;
    }
    in_text = c == '"';
    if (c == ',' || c == '[' || c == '{') ++values;
    if (c == '[' || c == '{') ++depth;
    if (c == ']' || c == '}') --depth;
    if (depth > kExplainJsonDepthMax) {
      return InvalidArgument("line is nested more than {} deep at byte {}; no request is", kExplainJsonDepthMax, i + 1);
    }
  }
  if (values > kExplainJsonValuesMax) {
    return InvalidArgument("line has about {} values; use at most {}", values, kExplainJsonValuesMax);
  }
  return absl::OkStatus();
}

absl::StatusOr<ExplainRequest> ReadRequest(const json& request) {
  if (!request.is_object()) return InvalidArgument("line is {}; use a JSON object", Shown(request));
  const Fields fields(request, "");
  TENURE_ASSIGN_OR_RETURN(const std::string op, fields.Text("op"));
  if (op == "store_mask") return ReadStoreMask(fields);
  if (op == "lookup_mask") return ReadLookupMask(fields);
  if (op == "load_mask") return ReadLoadMask(fields);
  if (op == "hit") return ReadHit(fields);
  if (op == "lookup") return ReadLookup(fields);
  if (op == "keys") return ReadKeys(fields);
  return InvalidArgument("op is {}; use store_mask, lookup_mask, load_mask, hit, lookup or keys", Shown(op));
}

}  // namespace

absl::StatusOr<ExplainRequest> ParseExplainRequest(std::string_view line) {
  if (line.empty()) return InvalidArgument("line is empty; use a JSON object");
  TENURE_RETURN_IF_ERROR(CheckShape(line));
  json request;
  try {
    request = json::parse(line);
  } catch (const json::parse_error& error) {
    return InvalidArgument("line is not JSON at byte {}; use one object in UTF-8 a line", error.byte);
  } catch (const json::exception& error) {
    return InvalidArgument("line is not JSON that can be read: {}; use smaller numbers", error.what());
  }
  return ReadRequest(request);
}

}  // namespace tenure::cli
