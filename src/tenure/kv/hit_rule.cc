#include "tenure/kv/hit_rule.h"

#include <algorithm>
#include <array>
#include <utility>

#include "tenure/base/check.h"
#include "tenure/kv/masks.h"

namespace tenure::kv {
namespace {

// One evaluation. Methods return nothing when `question` was set.
class Evaluation {
 public:
  Evaluation(const CacheConfig& config, int64_t num_hashes, const Knowledge& knowledge)
      : config_(config),
        knowledge_(knowledge),
        num_hashes_(num_hashes),
        hash_size_(config.hash_block_size().value()),
        alignment_(config.hit_alignment().value()) {}

  const Question& question() const { return question_; }

  std::optional<int64_t> Boundary(int64_t length_max, bool apply_eagle) {
    const auto units = config_.units();
    if (units.size() == 1) return UnitHit(0, length_max, apply_eagle && units[0].spec.eagle);
    return Converge(length_max, apply_eagle);
  }

  std::optional<Hit> Lookup(Tokens num_tokens) {
    const int64_t token_length = num_tokens.value() / alignment_ * alignment_;
    std::optional<int64_t> hit = Boundary(token_length, true);
    if (!hit) return std::nullopt;
    if (*hit >= num_tokens.value()) {
      // The last token is always computed, so the hit must leave it.
      const int64_t below = (num_tokens.value() - 1) / alignment_ * alignment_;
      if (below <= 0) return Hit();
      hit = Boundary(below, true);
      if (!hit) return std::nullopt;
    }
    return *hit > 0 ? Tails(Tokens(*hit)) : Hit();
  }

 private:
  // Repeats the units until none shortens the hit. A full-attention unit is searched once: a shorter prefix of a chain
  // is a chain.
  std::optional<int64_t> Converge(int64_t length_max, bool apply_eagle) {
    const auto units = config_.units();
    std::array<bool, CacheConfig::kGroupsMax> verified{};
    std::array<int64_t, CacheConfig::kGroupsMax> chain_hit{};
    int64_t hit = length_max;
    for (bool first_pass = true;; first_pass = false) {
      int64_t current = hit;
      for (size_t index = 0; index < units.size(); ++index) {
        const GroupSpec& spec = units[index].spec;
        const bool full = spec.kind == GroupKind::kFull;
        if (full && !first_pass) {
          current = std::min(current, chain_hit[index]);
          continue;
        }
        const bool drop = apply_eagle && spec.eagle && !verified[index];
        const std::optional<int64_t> found = UnitHit(index, ProofLimit(units[index], current, drop), drop);
        if (!found) return std::nullopt;
        if (drop) {
          verified[index] = true;
        } else if (*found < current) {
          verified.fill(false);
        }
        current = *found;
        // Nothing lengthens a hit again, and what units read below the first boundary is not worth asking for.
        if (current == 0) return 0;
        if (full) chain_hit[index] = current;
      }
      if (current >= hit) return hit;
      hit = current;
      if (units.size() == 2 && units[0].spec.kind == GroupKind::kFull) return hit;
    }
  }

  // How far a unit is searched: an eagle unit looks past the hit for its proof.
  int64_t ProofLimit(const LookupUnit& unit, int64_t current, bool drop) const {
    if (!drop || unit.spec.kind == GroupKind::kState) return current;
    const Tokens margin = EagleProofMargin(unit.spec.block_size, config_.hash_block_size(), unit.fine);
    return std::min(current + margin.value(), num_hashes_ * hash_size_);
  }

  std::optional<int64_t> UnitHit(size_t index, int64_t length_max, bool drop) {
    switch (config_.units()[index].spec.kind) {
      case GroupKind::kFull:
        return FullHit(index, length_max, drop);
      case GroupKind::kWindow:
        return WindowHit(index, length_max, drop);
      case GroupKind::kState:
        return StateHit(index, length_max);
      case GroupKind::kChunked:
        return ChunkedHit(index, length_max);
    }
    TENURE_CHECK(false);
  }

  std::optional<int64_t> FullHit(size_t index, int64_t length_max, bool drop) {
    const LookupUnit& unit = config_.units()[index];
    const int64_t block = unit.spec.block_size.value();
    const int64_t per_chunk = unit.hashes_per_chunk;
    const int64_t limit = std::min(length_max / block, num_hashes_ / per_chunk);
    const std::optional<int64_t> chain = knowledge_.ChainLength(unit, limit);
    if (!chain) {
      question_ = {Question::Kind::kChain, index, HashIndex(), limit, Tokens()};
      return std::nullopt;
    }
    int64_t hit = *chain * block;
    if (alignment_ < block) {
      const int64_t first = *chain * per_chunk;
      const int64_t end = std::min({first + per_chunk - 1, length_max / alignment_, num_hashes_});
      for (int64_t hash = end - 1; hash >= first; --hash) {
        const Presence presence = UnitPresence(knowledge_, unit, HashIndex(hash));
        if (presence == Presence::kUnknown) {
          question_ = {Question::Kind::kPartial, index, HashIndex(hash), 0, Tokens((hash + 1) * alignment_)};
          return std::nullopt;
        }
        if (presence == Presence::kPresent) {
          hit = (hash + 1) * alignment_;
          break;
        }
      }
    }
    if (drop && hit > 0) hit -= std::min(alignment_, block);
    return hit - hit % alignment_;
  }

  // The longest aligned run of `need` chunks, from the top; a run that reaches chunk 0 may be shorter.
  std::optional<int64_t> WindowHit(size_t index, int64_t length_max, bool drop) {
    const LookupUnit& unit = config_.units()[index];
    const int64_t block = unit.spec.block_size.value();
    const int64_t need = CeilDiv(unit.spec.window.value() - 1, block) + (drop ? 1 : 0);
    const int64_t past = drop ? 1 : 0;  // The run ends this many chunks after the hit.
    int64_t run = 0;
    int64_t kept = -1;
    for (int64_t chunk = std::min(length_max / block, num_hashes_ / unit.hashes_per_chunk) - 1; chunk >= 0; --chunk) {
      if (run == 0 && (chunk + 1 - past) * block % alignment_ != 0) continue;
      const HashIndex hash((chunk + 1) * unit.hashes_per_chunk - 1);
      const Presence presence = UnitPresence(knowledge_, unit, hash);
      if (presence == Presence::kUnknown) {
        question_ = {Question::Kind::kBoundary, index, hash, 0, Tokens((chunk + run + 1 - past) * block)};
        return std::nullopt;
      }
      run = presence == Presence::kPresent ? run + 1 : 0;
      if (run > 0 && run >= need) {
        kept = chunk + run;
        break;
      }
    }
    const auto trim = [this, block](int64_t chunks) {
      while (chunks > 0 && chunks * block % alignment_ != 0) --chunks;
      return chunks;
    };
    // A run that is too short is trimmed before the dropped chunk as well: vLLM loses up to a whole alignment here, and
    // so do we.
    if (kept < 0) kept = trim(run);
    if (drop && kept > 0) kept = trim(kept - 1);
    return kept * block;
  }

  std::optional<int64_t> StateHit(size_t index, int64_t length_max) {
    const LookupUnit& unit = config_.units()[index];
    const int64_t per_chunk = unit.hashes_per_chunk;
    // Fine mode: a state may stand at any hash unit; else at aligned ends of its blocks.
    const int64_t step = alignment_ < unit.spec.block_size.value() ? 1 : std::max(alignment_ / hash_size_, per_chunk);
    const int64_t end = std::min(length_max / hash_size_, num_hashes_) / step * step;
    for (int64_t hashes = end; hashes > 0; hashes -= step) {
      const Presence presence = UnitPresence(knowledge_, unit, HashIndex(hashes - 1));
      if (presence == Presence::kUnknown) {
        question_ = {Question::Kind::kBoundary, index, HashIndex(hashes - 1), 0, Tokens(hashes * hash_size_)};
        return std::nullopt;
      }
      if (presence == Presence::kPresent) return hashes * hash_size_;
    }
    return 0;
  }

  // Chunks before the last started attention chunk are never read, so they count as computed.
  std::optional<int64_t> ChunkedHit(size_t index, int64_t length_max) {
    const LookupUnit& unit = config_.units()[index];
    const int64_t block = unit.spec.block_size.value();
    const int64_t attention = unit.spec.chunk.value();
    const int64_t limit = std::min(length_max / block, num_hashes_ / unit.hashes_per_chunk);
    int64_t chunk = length_max / attention * attention / block;
    for (; chunk < limit; ++chunk) {
      const HashIndex hash((chunk + 1) * unit.hashes_per_chunk - 1);
      const Presence presence = UnitPresence(knowledge_, unit, hash);
      if (presence == Presence::kUnknown) {
        question_ = {Question::Kind::kBoundary, index, hash, 0, Tokens(limit * block)};
        return std::nullopt;
      }
      if (presence == Presence::kAbsent) break;
    }
    return chunk * block;
  }

  std::optional<Hit> Tails(Tokens hit) {
    Hit result;
    result.length = hit;
    result.tails.reserve(config_.groups().size());
    for (size_t group = 0; group < config_.groups().size(); ++group) {
      const GroupIndex index(static_cast<int32_t>(group));
      const ChunkRange range = LoadRange(config_, index, hit);
      if (range.first >= range.end) {
        result.tails.push_back(hit);
        continue;
      }
      const std::optional<int64_t> tail = Tail(index, hit);
      if (!tail) return std::nullopt;
      // An eagle window of one token proves a chunk that it never reads and reads one that is never stored.
      if (*tail == 0) return Hit();
      result.tails.emplace_back(*tail);
    }
    return result;
  }

  // Where the chunk that ends the hit is keyed; 0 for nowhere.
  std::optional<int64_t> Tail(GroupIndex group, Tokens hit) {
    const int64_t block = config_.groups()[static_cast<size_t>(group.value())].block_size.value();
    const int64_t first = hit.value() / hash_size_ - 1;
    const int64_t end =
        config_.fine() ? std::min(CeilDiv(hit.value(), block) * block / hash_size_, num_hashes_) : first + 1;
    for (int64_t hash = first; hash < end; ++hash) {
      const Presence presence = knowledge_.Get({group, HashIndex(hash)});
      if (presence == Presence::kUnknown) {
        question_ = {Question::Kind::kTail, 0, HashIndex(hash), 0, hit};
        return std::nullopt;
      }
      if (presence == Presence::kPresent) return (hash + 1) * hash_size_;
    }
    return 0;
  }

  const CacheConfig& config_;
  const Knowledge& knowledge_;
  const int64_t num_hashes_;
  const int64_t hash_size_;
  const int64_t alignment_;
  Question question_;
};

}  // namespace

std::optional<int64_t> Knowledge::ChainLength(const LookupUnit& unit, int64_t limit) const {
  for (int64_t chunk = 0; chunk < limit; ++chunk) {
    const Presence presence = UnitPresence(*this, unit, HashIndex((chunk + 1) * unit.hashes_per_chunk - 1));
    if (presence == Presence::kUnknown) return std::nullopt;
    if (presence == Presence::kAbsent) return chunk;
  }
  return limit;
}

Presence UnitPresence(const Knowledge& knowledge, const LookupUnit& unit, HashIndex hash) {
  Presence all = Presence::kPresent;
  for (const GroupIndex group : unit.groups) {
    const Presence one = knowledge.Get({group, hash});
    if (one == Presence::kAbsent) return Presence::kAbsent;
    if (one == Presence::kUnknown) all = Presence::kUnknown;
  }
  return all;
}

std::variant<Tokens, Question> FindBoundary(const CacheConfig& config, const BoundaryQuery& query,
                                            const Knowledge& knowledge) {
  Evaluation evaluation(config, query.num_hashes, knowledge);
  const std::optional<int64_t> hit = evaluation.Boundary(query.length_max.value(), query.apply_eagle);
  if (!hit) return evaluation.question();
  return Tokens(*hit);
}

std::variant<Hit, Question> FindHit(const CacheConfig& config, int64_t num_hashes, Tokens num_tokens,
                                    const Knowledge& knowledge) {
  if (num_hashes <= 0 || num_tokens < config.hit_alignment()) return Hit();
  Evaluation evaluation(config, num_hashes, knowledge);
  std::optional<Hit> hit = evaluation.Lookup(num_tokens);
  if (!hit) return evaluation.question();
  return *std::move(hit);
}

}  // namespace tenure::kv
