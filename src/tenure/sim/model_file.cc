#include <algorithm>
#include <initializer_list>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <utility>

#include "tenure/base/status.h"
#include "tenure/sim/byte_source.h"
#include "tenure/sim/model_profile.h"

namespace tenure::sim {
namespace {

using Json = nlohmann::json;

constexpr int64_t kTokensMax = int64_t{1} << 30;
constexpr size_t kNameMax = 128;
constexpr size_t kQuotedMax = 60;

// A container is only named: writing one out would recurse as deep as the file nests.
std::string Quoted(const Json& value) {
  if (value.is_structured()) return value.is_array() ? "an array" : "an object";
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > kQuotedMax) text = text.substr(0, kQuotedMax) + "...";
  return text;
}

absl::Status CheckFields(const Json& object, std::string_view where, std::initializer_list<std::string_view> known) {
  for (const auto& [field, value] : object.items()) {
    if (std::find(known.begin(), known.end(), field) == known.end()) {
      return InvalidArgument("{}{} is not a field of a model: remove it or check its spelling", where,
                             Quoted(Json(field)));
    }
  }
  return absl::OkStatus();
}

// A whole number in [minimum, maximum]; `fallback` where the field is missing, or an error without one.
absl::StatusOr<int64_t> Integer(const Json& object, std::string_view where, const char* field, int64_t minimum,
                                int64_t maximum, std::optional<int64_t> fallback = std::nullopt) {
  const auto found = object.find(field);
  if (found == object.end()) {
    if (fallback) return *fallback;
    return InvalidArgument("{}{} is missing: give a whole number from {} to {}", where, field, minimum, maximum);
  }
  const bool fits = found->is_number_unsigned() && found->get<uint64_t>() <= static_cast<uint64_t>(maximum) &&
                    found->get<int64_t>() >= minimum;
  if (!fits)
    return InvalidArgument("{}{} {}: give a whole number from {} to {}", where, field, Quoted(*found), minimum,
                           maximum);
  return found->get<int64_t>();
}

absl::StatusOr<bool> Flag(const Json& object, std::string_view where, const char* field) {
  const auto found = object.find(field);
  if (found == object.end()) return false;
  if (!found->is_boolean()) return InvalidArgument("{}{} {}: give true or false", where, field, Quoted(*found));
  return found->get<bool>();
}

struct Group {
  kv::GroupSpec spec;
  Bytes bytes;
};

absl::StatusOr<Group> ParseGroup(const Json& json, const std::string& where) {
  if (!json.is_object()) return InvalidArgument("{} {}: give an object", where, Quoted(json));
  const std::string prefix = where + ".";
  TENURE_RETURN_IF_ERROR(CheckFields(json, prefix, {"kind", "block_size", "window", "chunk", "eagle", "bytes"}));
  const auto kind = json.find("kind");
  if (kind == json.end() || !kind->is_string()) {
    return InvalidArgument("{}kind {}: give full, window, state or chunked", prefix,
                           kind == json.end() ? "missing" : Quoted(*kind));
  }
  Group group;
  TENURE_ASSIGN_OR_RETURN(group.spec.kind, kv::ParseGroupKind(prefix + "kind", kind->get_ref<const std::string&>()));
  TENURE_ASSIGN_OR_RETURN(const int64_t block, Integer(json, prefix, "block_size", 1, kTokensMax));
  group.spec.block_size = Tokens(block);
  if (group.spec.kind == kv::GroupKind::kWindow) {
    TENURE_ASSIGN_OR_RETURN(const int64_t window, Integer(json, prefix, "window", 1, kTokensMax));
    group.spec.window = Tokens(window);
  } else if (json.contains("window")) {
    return InvalidArgument("{}window {}: only a group of kind window has one; remove it", prefix,
                           Quoted(json["window"]));
  }
  if (group.spec.kind == kv::GroupKind::kChunked) {
    TENURE_ASSIGN_OR_RETURN(const int64_t chunk, Integer(json, prefix, "chunk", 1, kTokensMax));
    group.spec.chunk = Tokens(chunk);
  } else if (json.contains("chunk")) {
    return InvalidArgument("{}chunk {}: only a group of kind chunked has one; remove it", prefix,
                           Quoted(json["chunk"]));
  }
  TENURE_ASSIGN_OR_RETURN(group.spec.eagle, Flag(json, prefix, "eagle"));
  TENURE_ASSIGN_OR_RETURN(const int64_t bytes, Integer(json, prefix, "bytes", 1, kChunkBytesMax.value()));
  group.bytes = Bytes(bytes);
  return group;
}

absl::StatusOr<std::string> Name(const Json& json) {
  const auto name = json.find("name");
  if (name == json.end()) return InvalidArgument("name is missing: give the model's name");
  if (!name->is_string() || name->get_ref<const std::string&>().empty() ||
      name->get_ref<const std::string&>().size() > kNameMax) {
    return InvalidArgument("name {}: give 1 to {} characters", Quoted(*name), kNameMax);
  }
  return name->get<std::string>();
}

// The least common multiple of the groups' blocks; the error keeps it within kTokensMax.
absl::StatusOr<int64_t> SchedulerBlock(const std::vector<kv::GroupSpec>& groups) {
  int64_t block = 1;
  for (const kv::GroupSpec& group : groups) {
    block = std::lcm(block, group.block_size.value());  // Both at most 2^30, so the product fits.
    if (block > kTokensMax)
      return InvalidArgument("groups: the least common multiple of the block sizes is above {}", kTokensMax);
  }
  return block;
}

absl::StatusOr<std::string> ReadSmallFile(const std::string& path) {
  TENURE_ASSIGN_OR_RETURN(const std::unique_ptr<ByteSource> file, OpenFile(path, nullptr));
  std::string text(kModelFileBytesMax + 1, '\0');
  size_t size = 0;
  while (size < text.size()) {
    TENURE_ASSIGN_OR_RETURN(const size_t count, file->Read(std::span(text).subspan(size)));
    if (count == 0) break;
    size += count;
  }
  if (size > kModelFileBytesMax) return BadData("{}: more than 1 MiB: this is not a model file", path);
  text.resize(size);
  return text;
}

std::string BuiltinNames() {
  std::string names;
  for (const BuiltinModel& model : BuiltinModels()) names += std::string(model.name) + ", ";
  return names;
}

}  // namespace

absl::StatusOr<ModelProfile> ParseModelProfile(std::string_view text, Tokens trace_block) {
  const Json json = Json::parse(text.begin(), text.end(), nullptr, false);
  if (json.is_discarded()) return InvalidArgument("not JSON: give one object with name, hash_block_size and groups");
  if (!json.is_object())
    return InvalidArgument("{}: give an object with name, hash_block_size and groups", Quoted(json));
  TENURE_RETURN_IF_ERROR(
      CheckFields(json, "", {"name", "hash_block_size", "scheduler_block_size", "fine", "use_eagle", "groups"}));
  TENURE_ASSIGN_OR_RETURN(std::string name, Name(json));
  TENURE_ASSIGN_OR_RETURN(const int64_t hash_block, Integer(json, "", "hash_block_size", 1, kTokensMax));
  TENURE_ASSIGN_OR_RETURN(const bool fine, Flag(json, "", "fine"));
  if (fine) return InvalidArgument("fine true: replay saves whole chunks only; remove it");
  TENURE_ASSIGN_OR_RETURN(const bool use_eagle, Flag(json, "", "use_eagle"));
  const auto groups = json.find("groups");
  if (groups == json.end() || !groups->is_array() || groups->empty() ||
      groups->size() > size_t{kv::CacheConfig::kGroupsMax}) {
    return InvalidArgument("groups: give an array of 1 to {} groups", kv::CacheConfig::kGroupsMax);
  }
  std::vector<kv::GroupSpec> specs;
  std::vector<Bytes> bytes;
  for (size_t i = 0; i < groups->size(); ++i) {
    const std::string where = fmt::format("groups[{}]", i);
    TENURE_ASSIGN_OR_RETURN(const Group group, ParseGroup((*groups)[i], where));
    if (group.spec.block_size % Tokens(hash_block) != Tokens(0)) {
      return InvalidArgument("{}.block_size {}: give a multiple of hash_block_size {}", where,
                             group.spec.block_size.value(), hash_block);
    }
    specs.push_back(group.spec);
    bytes.push_back(group.bytes);
  }
  TENURE_ASSIGN_OR_RETURN(const int64_t lcm, SchedulerBlock(specs));
  TENURE_ASSIGN_OR_RETURN(const int64_t scheduler_block, Integer(json, "", "scheduler_block_size", 1, kTokensMax, lcm));
  if (hash_block % trace_block.value() != 0) {
    return InvalidArgument("hash_block_size {}: give the trace's block {} (--trace-block) or a multiple of it",
                           hash_block, trace_block.value());
  }
  // Whole chunks only, so the trace's own block can be the hash unit: a chunk is keyed by the last hash inside it.
  TENURE_ASSIGN_OR_RETURN(kv::CacheConfig config,
                          kv::CacheConfig::Create({.hash_block_size = trace_block,
                                                   .scheduler_block_size = Tokens(scheduler_block),
                                                   .fine = false,
                                                   .use_eagle = use_eagle,
                                                   .groups = std::move(specs)}));
  return ModelProfile{std::move(name), std::move(config), std::move(bytes)};
}

absl::StatusOr<ModelProfile> LoadModel(const std::string& name_or_path, Tokens trace_block) {
  for (const BuiltinModel& model : BuiltinModels()) {
    if (model.name == name_or_path) return MakeBuiltinProfile(model, trace_block);
  }
  const auto text = ReadSmallFile(name_or_path);
  if (!text.ok()) {
    return InvalidArgument("--model {}: neither a built-in model ({}see `tenure models`) nor a readable file ({})",
                           name_or_path, BuiltinNames(), Message(text.status()));
  }
  auto profile = ParseModelProfile(*text, trace_block);
  if (!profile.ok()) return BadData("{}: {}", name_or_path, Message(profile.status()));
  return profile;
}

}  // namespace tenure::sim
