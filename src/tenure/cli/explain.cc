#include "tenure/cli/explain.h"

#include <exception>
#include <istream>
#include <nlohmann/json.hpp>
#include <ostream>
#include <streambuf>
#include <utility>

#include "tenure/base/status.h"
#include "tenure/cli/explain_pool.h"
#include "tenure/cli/explain_request.h"
#include "tenure/connector/lookup.h"
#include "tenure/kv/hit.h"
#include "tenure/kv/hit_rule.h"

namespace tenure::cli {
namespace {

using Json = nlohmann::ordered_json;  // Answers keep the order of the reference.

// null for "all"; only `masks` has it.
Json MasksOf(const std::vector<kv::ChunkMask>& masks) {
  Json list = Json::array();
  for (const kv::ChunkMask& mask : masks) list.push_back(mask.is_all() ? Json() : Json(mask.ToString()));
  return list;
}

// Everything is known: present or not.
class KnownBits final : public kv::Knowledge {
 public:
  explicit KnownBits(const PresentBits& present) : present_(present) {}
  kv::Presence Get(kv::GroupHash key) const override {
    const std::vector<bool>& group = present_[static_cast<size_t>(key.group.value())];
    return group[static_cast<size_t>(key.hash.value())] ? kv::Presence::kPresent : kv::Presence::kAbsent;
  }

 private:
  const PresentBits& present_;
};

class Everything final : public kv::Knowledge {
 public:
  kv::Presence Get(kv::GroupHash /*key*/) const override { return kv::Presence::kPresent; }
  std::optional<int64_t> ChainLength(const kv::LookupUnit& /*unit*/, int64_t limit) const override { return limit; }
};

absl::StatusOr<Tokens> Boundary(const kv::CacheConfig& config, const kv::BoundaryQuery& query,
                                const kv::Knowledge& knowledge) {
  const auto found = kv::FindBoundary(config, query, knowledge);
  if (const Tokens* hit = std::get_if<Tokens>(&found)) return *hit;
  return absl::InternalError("the hit rule asked for a key although all are known");
}

absl::StatusOr<Json> Answer(const StoreMaskRequest& request) {
  return Json{{"masks", MasksOf(kv::StoreMask(request.config, request.query))}};
}

absl::StatusOr<Json> Answer(const LookupMaskRequest& request) {
  return Json{{"masks", MasksOf(kv::LookupMask(request.config, request.length))}};
}

absl::StatusOr<Json> Answer(const LoadMaskRequest& request) {
  kv::BoundaryQuery query;
  query.num_hashes = request.length / request.config.hash_block_size();
  query.length_max = request.length;
  query.apply_eagle = false;
  TENURE_ASSIGN_OR_RETURN(const Tokens hit, Boundary(request.config, query, Everything()));
  return Json{{"load", MasksOf(kv::LoadMask(request.config, hit))}};
}

absl::StatusOr<Json> Answer(const HitRequest& request) {
  kv::BoundaryQuery query;
  query.num_hashes = request.num_hashes;
  query.length_max = request.length_max;
  query.apply_eagle = request.apply_eagle;
  TENURE_ASSIGN_OR_RETURN(const Tokens hit, Boundary(request.config, query, KnownBits(request.present)));
  return Json{{"hit", hit.value()}, {"load", MasksOf(kv::LoadMask(request.config, hit))}};
}

absl::StatusOr<Json> Answer(const LookupRequest& request) {
  ExplainPool pool(request.present, request.ranks);
  connector::LookupOptions options;
  options.mode = request.mode;
  TENURE_ASSIGN_OR_RETURN(connector::Lookup lookup,
                          connector::Lookup::Create(request.config, pool, pool.Namespaces(), options));
  const connector::LookupResult result = lookup.Find(IndexHashSource(request.num_hashes), request.num_tokens);
  Json tails = Json::array();
  for (size_t group = 0; group < result.hit.tails.size(); ++group) {
    tails.push_back(Json::array({group, result.hit.tails[group].value()}));
  }
  Json load_set = Json::array();
  for (const kv::GroupHash& load : kv::LoadSet(request.config, result.hit)) {
    load_set.push_back(Json::array({load.group.value(), load.hash.value()}));
  }
  return Json{{"hit", result.hit.length.value()},
              {"tails", std::move(tails)},
              {"load_set", std::move(load_set)},
              {"probed", pool.distinct_keys_probed()},
              {"leased", result.cost.keys_leased}};
}

absl::StatusOr<Json> Answer(const KeysRequest& request) {
  const std::string prefix = kv::NamespacePrefix(request.names, request.rank, request.group);
  Json keys = Json::array();
  for (const std::string& hash : request.hashes) keys.push_back(prefix + hash);
  return Json{{"keys", std::move(keys)}};
}

std::string Text(const Json& answer) {
  return answer.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

std::string ErrorLine(std::string_view message) { return Text(Json{{"error", std::string(message)}}); }

absl::StatusOr<Json> AnswerLine(std::string_view line) {
  TENURE_ASSIGN_OR_RETURN(const ExplainRequest request, ParseExplainRequest(line));
  return std::visit([](const auto& one) { return Answer(one); }, request);
}

enum class ReadResult : uint8_t { kLine, kTooLong, kEnd };

// The next line without its line feed; what a last line without one holds is a line too.
ReadResult ReadLine(std::streambuf& in, std::string& line) {
  using Traits = std::streambuf::traits_type;
  line.clear();
  size_t bytes = 0;
  for (auto c = in.sbumpc(); !Traits::eq_int_type(c, Traits::eof()); c = in.sbumpc()) {
    if (Traits::to_char_type(c) == '\n') return bytes > kExplainLineBytesMax ? ReadResult::kTooLong : ReadResult::kLine;
    if (++bytes <= kExplainLineBytesMax) line += Traits::to_char_type(c);
  }
  if (bytes == 0) return ReadResult::kEnd;
  return bytes > kExplainLineBytesMax ? ReadResult::kTooLong : ReadResult::kLine;
}

}  // namespace

std::string ExplainLine(std::string_view line) {
  try {
    const absl::StatusOr<Json> answer = AnswerLine(line);
    return answer.ok() ? Text(*answer) : ErrorLine(Message(answer.status()));
  } catch (const std::exception& error) {
    // Lack of memory for one request must not end the session.
    return ErrorLine(
        fmt::format("line of {} bytes could not be answered: {}; ask for less", line.size(), error.what()));
  }
}

int RunExplain(std::istream& in, std::ostream& out) {
  std::string line;
  while (out.good()) {
    const ReadResult result = ReadLine(*in.rdbuf(), line);
    if (result == ReadResult::kEnd) return 0;
    if (result == ReadResult::kTooLong) {
      out << ErrorLine(fmt::format("line is longer than {} bytes; ask for less", kExplainLineBytesMax)) << '\n';
    } else {
      out << ExplainLine(line) << '\n';
    }
    out.flush();
  }
  return 1;
}

}  // namespace tenure::cli
