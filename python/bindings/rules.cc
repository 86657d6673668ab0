// The hit rules: groups, masks, hits, block sizes. Every number is checked here, so that no precondition of kv can
// fail.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <string>

#include "bindings/bind.h"
#include "bindings/convert.h"
#include "bindings/errors.h"
#include "tenure/base/status.h"
#include "tenure/kv/block_sizes.h"
#include "tenure/kv/cache_config.h"
#include "tenure/kv/hit.h"
#include "tenure/kv/hit_rule.h"
#include "tenure/kv/masks.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace tenure::python {
namespace {

// A mask or a prompt longer than this is a mistake in its arguments.
constexpr int64_t kChunksMax = int64_t{1} << 24;

kv::GroupSpec MakeGroupSpec(const std::string& kind, int64_t block_size, int64_t window, int64_t chunk, bool eagle) {
  kv::GroupSpec spec;
  spec.kind = ValueOrThrow(kv::ParseGroupKind("kind", kind));
  spec.block_size = TokensFrom("block_size", block_size, 1);
  spec.window = TokensFrom("window", window, spec.kind == kv::GroupKind::kWindow ? 1 : 0);
  spec.chunk = TokensFrom("chunk", chunk, spec.kind == kv::GroupKind::kChunked ? 1 : 0);
  spec.eagle = eagle;
  return spec;
}

std::string Repr(const kv::GroupSpec& spec) {
  std::string text = fmt::format("GroupSpec('{}', {}", ToString(spec.kind), spec.block_size.value());
  if (spec.kind == kv::GroupKind::kWindow) text += fmt::format(", window={}", spec.window.value());
  if (spec.kind == kv::GroupKind::kChunked) text += fmt::format(", chunk={}", spec.chunk.value());
  return text + (spec.eagle ? ", eagle=True)" : ")");
}

void InitConfig(kv::CacheConfig* self, std::vector<kv::GroupSpec> groups, int64_t hash_block_size,
                int64_t scheduler_block_size, bool fine, bool use_eagle) {
  kv::CacheConfig::Options options;
  options.hash_block_size = Tokens(hash_block_size);
  options.scheduler_block_size = Tokens(scheduler_block_size);
  options.fine = fine;
  options.use_eagle = use_eagle;
  options.groups = std::move(groups);
  new (self) kv::CacheConfig(ValueOrThrow(kv::CacheConfig::Create(std::move(options))));
}

// A prompt length whose masks fit in memory.
Tokens LengthFrom(const kv::CacheConfig& config, std::string_view what, int64_t length) {
  CheckRange(what, length, 0, std::min(kChunksMax * config.hash_block_size().value(), kv::CacheConfig::kTokensMax));
  return Tokens(length);
}

Tokens AlignedFrom(const kv::CacheConfig& config, std::string_view what, int64_t length) {
  const Tokens tokens = LengthFrom(config, what, length);
  if (tokens % config.hit_alignment() != Tokens()) {
    Throw(InvalidArgument("{} is {}; use a multiple of the hit alignment {}", what, length,
                          config.hit_alignment().value()));
  }
  return tokens;
}

std::optional<Tokens> RetentionFrom(const kv::CacheConfig& config, std::optional<int64_t> retention) {
  if (!retention.has_value()) return std::nullopt;
  const Tokens tokens = TokensFrom("retention", *retention);
  if (tokens % config.scheduler_block_size() != Tokens()) {
    Throw(InvalidArgument("retention is {}; use None, 0 or a multiple of scheduler_block_size {}", *retention,
                          config.scheduler_block_size().value()));
  }
  return tokens;
}

nb::list StoreMask(const kv::CacheConfig& config, int64_t length, int64_t start,
                   std::optional<int64_t> num_prompt_tokens, std::optional<int64_t> retention) {
  kv::StoreQuery query;
  query.length = AlignedFrom(config, "length", length);
  query.start = TokensFrom("start", start);
  if (num_prompt_tokens) query.num_prompt_tokens = TokensFrom("num_prompt_tokens", *num_prompt_tokens, 1);
  query.retention = RetentionFrom(config, retention);
  return ToPython(kv::StoreMask(config, query));
}

kv::Hit MakeHit(const kv::CacheConfig& config, int64_t length, std::optional<std::vector<int64_t>> tails) {
  kv::Hit hit;
  hit.length = AlignedFrom(config, "length", length);
  if (length == 0) return hit;
  if (!tails) tails.emplace(config.groups().size(), length);
  if (tails->size() != config.groups().size()) {
    Throw(InvalidArgument("tails has {} entries; give one a group, {}", tails->size(), config.groups().size()));
  }
  for (const int64_t tail : *tails) {
    hit.tails.push_back(LengthFrom(config, "tails[]", tail));
    if (tail < length || tail % config.hash_block_size().value() != 0) {
      Throw(InvalidArgument("tails[] is {}; use a multiple of hash_block_size at or after the hit {}", tail, length));
    }
  }
  return hit;
}

std::vector<std::pair<int32_t, int64_t>> LoadSet(const kv::CacheConfig& config, const kv::Hit& hit) {
  // A hit of another config would break what kv counts on.
  std::vector<int64_t> tails;
  for (const Tokens tail : hit.tails) tails.push_back(tail.value());
  const kv::Hit checked = MakeHit(config, hit.length.value(), std::move(tails));
  std::vector<std::pair<int32_t, int64_t>> loads;
  for (const kv::GroupHash& load : kv::LoadSet(config, checked)) {
    loads.emplace_back(load.group.value(), load.hash.value());
  }
  return loads;
}

class CallableKnowledge final : public kv::Knowledge {
 public:
  explicit CallableKnowledge(const nb::callable& present) : present_(present) {}
  kv::Presence Get(kv::GroupHash key) const override {
    return nb::cast<bool>(present_(key.group.value(), key.hash.value())) ? kv::Presence::kPresent
                                                                         : kv::Presence::kAbsent;
  }

 private:
  const nb::callable& present_;
};

kv::Hit FindHit(const kv::CacheConfig& config, int64_t num_hashes, int64_t num_tokens, const nb::callable& present) {
  CheckRange("num_hashes", num_hashes, 0, kChunksMax);
  const Tokens tokens = TokensFrom("num_tokens", num_tokens);
  return std::get<kv::Hit>(kv::FindHit(config, num_hashes, tokens, CallableKnowledge(present)));
}

nb::object ReachableMask(const kv::GroupSpec& spec, int64_t start, int64_t end, std::optional<int64_t> alignment,
                         std::optional<int64_t> retention, const std::vector<int64_t>& boundaries) {
  CheckRange("start", start, 0, kv::CacheConfig::kTokensMax);
  CheckRange("end", end, start, start + kChunksMax);
  std::vector<Tokens> ends;
  for (const int64_t boundary : boundaries) ends.push_back(TokensFrom("boundaries[]", boundary));
  kv::ReachableQuery query{.start = start, .end = end, .alignment = {}, .retention = {}, .boundaries = ends};
  if (alignment) query.alignment = TokensFrom("alignment", *alignment, 1);
  if (retention) query.retention = TokensFrom("retention", *retention);
  return ToPython(kv::ReachableMask(spec, query));
}

std::vector<int64_t> ReplayBoundaries(int64_t num_tokens, int64_t scheduler_block_size, bool eagle) {
  std::vector<int64_t> boundaries;
  for (const Tokens boundary :
       kv::ReplayBoundaries(TokensFrom("num_tokens", num_tokens, 1),
                            TokensFrom("scheduler_block_size", scheduler_block_size, 1), eagle)) {
    boundaries.push_back(boundary.value());
  }
  return boundaries;
}

kv::ModelGroup MakeModelGroup(const std::string& kind, int64_t block_size, bool dcp_sharded, bool prefix_cacheable,
                              bool state_align, int64_t tokens_per_state) {
  return {.kind = ValueOrThrow(kv::ParseGroupKind("kind", kind)),
          .block_size = TokensFrom("block_size", block_size, 1),
          .dcp_sharded = dcp_sharded,
          .prefix_cacheable = prefix_cacheable,
          .state_align = state_align,
          .tokens_per_state = tokens_per_state};
}

kv::BlockSizes ResolveBlockSizes(std::vector<kv::ModelGroup> groups, int64_t dcp_size,
                                 std::optional<int64_t> prefix_match_unit, bool prefix_caching) {
  kv::BlockSizeOptions options;
  options.groups = std::move(groups);
  options.dcp_size = dcp_size;
  if (prefix_match_unit) options.prefix_match_unit = TokensFrom("prefix_match_unit", *prefix_match_unit, 1);
  options.prefix_caching = prefix_caching;
  return ValueOrThrow(kv::ResolveBlockSizes(options));
}

void BindGroups(nb::module_& module) {
  nb::class_<kv::GroupSpec>(
      module, "GroupSpec",
      "One KV-cache group: layers that share one KV shape and rule. A value; equal specs are looked up as one unit.\n\n"
      "kind: 'full' (also MLA), 'window', 'state' (recurrent, align mode) or 'chunked'. block_size: tokens of one "
      "chunk.\n"
      "window: tokens a query sees, itself included; 'window' only. chunk: tokens of one attention chunk; 'chunked' "
      "only.\n"
      "eagle: a draft model reads this group one chunk past the hit. ValueError names a field out of range.")
      .def(
          "__init__",
          [](kv::GroupSpec* self, const std::string& kind, int64_t block_size, int64_t window, int64_t chunk,
             bool eagle) { new (self) kv::GroupSpec(MakeGroupSpec(kind, block_size, window, chunk, eagle)); },
          "kind"_a, "block_size"_a, nb::kw_only(), "window"_a = 0, "chunk"_a = 0, "eagle"_a = false)
      .def_prop_ro("kind", [](const kv::GroupSpec& self) { return std::string(ToString(self.kind)); })
      .def_prop_ro("block_size", [](const kv::GroupSpec& self) { return self.block_size.value(); })
      .def_prop_ro("window", [](const kv::GroupSpec& self) { return self.window.value(); })
      .def_prop_ro("chunk", [](const kv::GroupSpec& self) { return self.chunk.value(); })
      .def_ro("eagle", &kv::GroupSpec::eagle)
      .def("__eq__", [](const kv::GroupSpec& self, const kv::GroupSpec& other) { return self == other; })
      .def("__eq__", [](const kv::GroupSpec&, nb::handle) { return false; })
      .def("__hash__", [](const kv::GroupSpec& self) { return nb::hash(nb::str(Repr(self).c_str())); })
      .def("__repr__", &Repr);

  nb::class_<kv::Hit>(
      module, "Hit",
      "The longest boundary at which every group has what a load needs. A value.\n\n"
      "length: tokens, a multiple of the config's hit alignment; 0 is a miss. tails: one boundary a group,\n"
      "whose hash keys the chunk that ends the hit; at `length`, or after it in fine mode.")
      .def_prop_ro("length", [](const kv::Hit& self) { return self.length.value(); })
      .def_prop_ro("tails",
                   [](const kv::Hit& self) {
                     std::vector<int64_t> tails;
                     for (const Tokens tail : self.tails) tails.push_back(tail.value());
                     return tails;
                   })
      .def("__eq__", [](const kv::Hit& self, const kv::Hit& other) { return self == other; })
      .def("__eq__", [](const kv::Hit&, nb::handle) { return false; })
      .def("__bool__", [](const kv::Hit& self) { return self.length.value() > 0; })
      .def("__repr__", [](const kv::Hit& self) { return fmt::format("Hit(length={})", self.length.value()); });
}

void BindConfig(nb::module_& module) {
  nb::class_<kv::CacheConfig>(
      module, "CacheConfig",
      "The checked KV-cache configuration of one model. Immutable; may be used from any thread.\n\n"
      "groups: 1 to 64, in the order of their ids in keys. hash_block_size: tokens a block hash covers.\n"
      "scheduler_block_size: the least common multiple of the groups' block sizes. fine: hits align to "
      "hash_block_size\n"
      "instead of scheduler_block_size (partial hash hits). use_eagle: makes every group eagle when none is flagged.\n"
      "ValueError names the field. resolve_block_sizes() computes the sizes as vLLM does.")
      .def("__init__", &InitConfig, "groups"_a, nb::kw_only(), "hash_block_size"_a, "scheduler_block_size"_a,
           "fine"_a = false, "use_eagle"_a = false)
      .def_prop_ro("groups",
                   [](const kv::CacheConfig& self) {
                     return std::vector<kv::GroupSpec>(self.groups().begin(), self.groups().end());
                   })
      .def_prop_ro("hash_block_size", [](const kv::CacheConfig& self) { return self.hash_block_size().value(); })
      .def_prop_ro("scheduler_block_size",
                   [](const kv::CacheConfig& self) { return self.scheduler_block_size().value(); })
      .def_prop_ro("hit_alignment", [](const kv::CacheConfig& self) { return self.hit_alignment().value(); })
      .def_prop_ro("fine", &kv::CacheConfig::fine)
      .def(
          "lookup_mask",
          [](const kv::CacheConfig& self, int64_t length) {
            return ToPython(kv::LookupMask(self, LengthFrom(self, "length", length)));
          },
          "length"_a,
          "Which chunks of each group a lookup over `length` tokens may ask for: one entry a group, a bool a chunk, or "
          "None\n"
          "for every chunk.")
      .def("store_mask", &StoreMask, "length"_a, nb::kw_only(), "start"_a = 0,
           "num_prompt_tokens"_a.none() = nb::none(), "retention"_a.none() = 0,
           "Which chunks of the suffix [start, length) are worth storing: one entry a group, a bool a chunk from the "
           "first\n"
           "one at or after `start`, or None for every chunk. State groups are all False: their states are stored at\n"
           "boundaries one by one. length: a multiple of the hit alignment. retention: tokens between kept tails; None "
           "keeps\n"
           "every boundary's, 0 only those from which a prompt of num_prompt_tokens resumes.")
      .def(
          "load_mask",
          [](const kv::CacheConfig& self, int64_t length) {
            return ToPython(kv::LoadMask(self, AlignedFrom(self, "length", length)));
          },
          "length"_a,
          "Which chunks of each group a load of a hit of `length` tokens reads; explicit, one bool a chunk.")
      .def("hit", &MakeHit, "length"_a, "tails"_a.none() = nb::none(),
           "A Hit of this config from its length in tokens; without tails they are all at the hit.")
      .def("load_set", &LoadSet, "hit"_a,
           "The (group, hash index) pairs that a load of `hit` reads, group by group, ascending. Each stands for one "
           "object\n"
           "on every rank of the group.")
      .def("find_hit", &FindHit, "num_hashes"_a, "num_tokens"_a, "present"_a,
           "The longest hit of a prompt of num_tokens tokens with num_hashes block hashes, at most num_tokens - 1 "
           "tokens.\n"
           "present(group, hash_index) -> bool answers for all ranks of the group; what it raises comes through.")
      .def("__repr__", [](const kv::CacheConfig& self) {
        return fmt::format("CacheConfig({} groups, hash_block_size={}, scheduler_block_size={}, fine={})",
                           self.groups().size(), self.hash_block_size().value(), self.scheduler_block_size().value(),
                           self.fine() ? "True" : "False");
      });
}

void BindBlockSizes(nb::module_& module) {
  nb::class_<kv::ModelGroup>(
      module, "ModelGroup",
      "One group as the engine configures it, before decode context parallelism (dcp) scales it.\n\n"
      "dcp_sharded: attention True, states False. state_align: the 'align' mode of a state group.\n"
      "tokens_per_state: above 1, states exist at these multiples only.")
      .def(
          "__init__",
          [](kv::ModelGroup* self, const std::string& kind, int64_t block_size, bool dcp_sharded, bool prefix_cacheable,
             bool state_align, int64_t tokens_per_state) {
            new (self) kv::ModelGroup(
                MakeModelGroup(kind, block_size, dcp_sharded, prefix_cacheable, state_align, tokens_per_state));
          },
          "kind"_a, "block_size"_a, nb::kw_only(), "dcp_sharded"_a = true, "prefix_cacheable"_a = true,
          "state_align"_a = true, "tokens_per_state"_a = 1);
  nb::class_<kv::BlockSizes>(module, "BlockSizes", "What resolve_block_sizes() found; tokens.")
      .def_prop_ro("scheduler_block_size", [](const kv::BlockSizes& self) { return self.scheduler_block_size.value(); })
      .def_prop_ro("hash_block_size", [](const kv::BlockSizes& self) { return self.hash_block_size.value(); })
      .def_prop_ro("hit_alignment", [](const kv::BlockSizes& self) { return self.hit_alignment.value(); })
      .def("__repr__", [](const kv::BlockSizes& self) {
        return fmt::format("BlockSizes(scheduler_block_size={}, hash_block_size={}, hit_alignment={})",
                           self.scheduler_block_size.value(), self.hash_block_size.value(), self.hit_alignment.value());
      });
  module.def(
      "resolve_block_sizes", &ResolveBlockSizes, "groups"_a, nb::kw_only(), "dcp_size"_a = 1,
      "prefix_match_unit"_a.none() = nb::none(), "prefix_caching"_a = true,
      "The scheduler block, the hash unit and the hit alignment that vLLM derives for a model. ValueError names the\n"
      "group or option that does not fit. hit_alignment below scheduler_block_size means CacheConfig(fine=True).");
}

}  // namespace

void BindRules(nb::module_& module) {
  BindGroups(module);
  BindConfig(module);
  BindBlockSizes(module);
  module.def(
      "reachable_mask", &ReachableMask, "spec"_a, "start"_a, "end"_a, nb::kw_only(), "alignment"_a.none() = nb::none(),
      "retention"_a.none() = nb::none(), "boundaries"_a = std::vector<int64_t>(),
      "Which chunks [start, end) of a group a later hit can read: a bool a chunk, or None for all. Tokens: alignment\n"
      "of hits (None: unknown), retention (None: every aligned boundary's tail, 0: only `boundaries`).");
  module.def(
      "replay_boundaries", &ReplayBoundaries, "num_tokens"_a, "scheduler_block_size"_a, "eagle"_a = false,
      "The prefix lengths, in tokens and ascending, from which a prompt of num_tokens is resumed when asked again.");
  module.def(
      "eagle_proof_margin",
      [](int64_t block_size, int64_t hash_block_size, bool fine) {
        return kv::EagleProofMargin(TokensFrom("block_size", block_size, 1),
                                    TokensFrom("hash_block_size", hash_block_size, 1), fine)
            .value();
      },
      "block_size"_a, "hash_block_size"_a, "fine"_a, "Tokens past a hit that an eagle group must prove.");
  module.def(
      "state_checkpoint",
      [](int64_t num_tokens, int64_t hash_block_size, bool eagle) {
        return kv::StateCheckpoint(TokensFrom("num_tokens", num_tokens),
                                   TokensFrom("hash_block_size", hash_block_size, 1), eagle)
            .value();
      },
      "num_tokens"_a, "hash_block_size"_a, "eagle"_a = false,
      "Where a recurrent state of a prompt is saved, in tokens; 0 for nowhere.");
}

}  // namespace tenure::python
