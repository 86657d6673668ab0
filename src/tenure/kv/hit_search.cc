#include "tenure/kv/hit_search.h"

#include <algorithm>
#include <utility>
#include <variant>
#include <vector>

#include "tenure/base/check.h"
#include "tenure/kv/candidates.h"
#include "tenure/kv/chain_search.h"
#include "tenure/kv/hit_rule.h"
#include "tenure/kv/presence_table.h"

namespace tenure::kv {
namespace {

// Window chunks that the first batch asks for: the hit may be far below, and then they were asked in vain.
constexpr int64_t kFirstRunChunksMax = 32;

// So many sections that the second round decides a chain.
int64_t SectionsOf(int64_t chunks) {
  int64_t sections = HitSearch::kSectionProbes;
  while (sections < HitSearch::kDearSectionProbesMax && sections * sections < chunks) ++sections;
  return sections;
}

}  // namespace

class HitSearch::Core final : public Knowledge {
 public:
  explicit Core(const CacheConfig& config)
      : config_(config), table_(config.groups().size()), candidates_(config, 0, Tokens()) {
    for (const LookupUnit& unit : config.units()) num_chains_ += unit.spec.kind == GroupKind::kFull ? 1 : 0;
    for (const LookupUnit& unit : config.units()) {
      const bool eagle_window = unit.spec.kind == GroupKind::kWindow && unit.spec.eagle;
      has_eagle_window_ |= eagle_window;
      has_lone_proof_ |= eagle_window && unit.spec.window == Tokens(1);
    }
    chains_.resize(num_chains_);
    certain_.resize(num_chains_);
  }

  void Start(const Query& query);
  std::span<const GroupHash> Step();
  void Learn(std::span<const Presence> answers);
  void LearnKey(GroupHash key, Presence presence);
  const Hit& hit() const { return hit_; }
  int64_t restarts() const { return restarts_; }

  // Knowledge, as the rule reads it.
  Presence Get(GroupHash key) const override;
  std::optional<int64_t> ChainLength(const LookupUnit& unit, int64_t limit) const override;

 private:
  // Chunks, in steps of `hashes` hash units, that a unit other than full attention needs for a hit.
  struct Run {
    int64_t first = 0;
    int64_t end = 0;
    int64_t hashes = 1;
  };

  const LookupUnit& unit(size_t index) const { return config_.units()[index]; }
  size_t IndexOf(const LookupUnit& unit) const { return static_cast<size_t>(&unit - config_.units().data()); }
  int64_t alignment() const { return config_.hit_alignment().value(); }

  Presence Known(const LookupUnit& unit, HashIndex hash) const;
  void Want(const LookupUnit& unit, HashIndex hash);
  void WantChunk(const LookupUnit& unit, int64_t chunk) {
    Want(unit, HashIndex((chunk + 1) * unit.hashes_per_chunk - 1));
  }
  void WantFirst();
  void WantAnswer(const Question& question);
  void WantSections();
  void WantPartials(const Question& question);
  void WantTails(Tokens hit);
  void WantBoundaries(Tokens top);
  void WantRuns(const LookupUnit& unit, Tokens top, int64_t boundaries, int64_t chunks_max);
  Run RunAt(const LookupUnit& unit, int64_t boundary) const;
  std::span<const GroupHash> Batch();

  bool EndsAtChunk(const Hit& hit, const LookupUnit& unit) const;
  bool AllCertain(const Hit& hit);
  bool Verify(const Hit& hit);
  bool FellBelow(Tokens hit) const;
  bool MayHaveLost(Tokens hit) const;
  bool MayLoad(const LookupUnit& unit, Tokens boundary) const;
  void WantProof(Tokens hit);
  bool Proven(Tokens hit) const;
  void WantAssumed();

  const CacheConfig& config_;
  PresenceTable table_;
  LookupCandidates candidates_;
  Query query_;
  size_t num_chains_ = 0;  // Full-attention units are the first ones.
  std::vector<ChainSearch> chains_;
  std::vector<int64_t> certain_;  // Leading chunks known or in the load set; read while `doubting_`.
  bool doubting_ = false;         // Evaluate with every assumed chunk absent.
  bool started_ = false;
  bool is_dear_ = false;
  // An eagle window of one token proves a chunk that no load reads, so the rule may end at a boundary that cannot be
  // loaded, which is a miss; a shorter chain might have ended at one that can.
  bool has_lone_proof_ = false;
  bool has_eagle_window_ = false;
  int64_t batch_boundaries_ = 1;
  int64_t restarts_ = 0;
  std::vector<GroupHash> wanted_;
  Hit hit_;
};

void HitSearch::Core::Start(const Query& query) {
  TENURE_CHECK(query.num_hashes <= int64_t{1} << 32);
  query_ = query;
  candidates_ = LookupCandidates(config_, query.num_hashes, query.num_tokens);
  table_.Reset(candidates_.hash_end());
  for (size_t i = 0; i < num_chains_; ++i) {
    chains_[i] = ChainSearch(candidates_.hash_end() / unit(i).hashes_per_chunk);
  }
  doubting_ = started_ = false;
  is_dear_ = query.mode == SearchMode::kTailFirst && query.round_cost == RoundCost::kDear;
  batch_boundaries_ = is_dear_ ? kDearBoundaries : 1;
  restarts_ = 0;
  wanted_.clear();
  hit_ = Hit();
}

std::span<const GroupHash> HitSearch::Core::Step() {
  wanted_.clear();
  if (!std::exchange(started_, true)) {
    if (query_.mode == SearchMode::kExhaustive) {
      candidates_.AppendAll(wanted_);
      return wanted_;
    }
    WantFirst();
    if (!wanted_.empty()) return Batch();
  }
  const auto outcome = FindHit(config_, query_.num_hashes, query_.num_tokens, *this);
  if (const auto* question = std::get_if<Question>(&outcome)) {
    WantAnswer(*question);
    TENURE_CHECK(!wanted_.empty());
    return Batch();
  }
  hit_ = std::get<Hit>(outcome);
  if (query_.mode == SearchMode::kTailFirst && query_.trust == ChainTrust::kIndependent && !Verify(hit_))
    return Batch();
  return {};
}

void HitSearch::Core::Learn(std::span<const Presence> answers) {
  TENURE_CHECK(answers.size() == wanted_.size());
  for (size_t i = 0; i < answers.size(); ++i) LearnKey(wanted_[i], answers[i]);
  wanted_.clear();
}

void HitSearch::Core::LearnKey(GroupHash key, Presence presence) {
  TENURE_CHECK(presence != Presence::kUnknown && key.hash.value() < candidates_.hash_end());
  table_.Set(key, presence);
  const LookupUnit& owner = config_.UnitOf(key.group);
  const int64_t hashes = key.hash.value() + 1;
  if (owner.spec.kind != GroupKind::kFull || hashes % owner.hashes_per_chunk != 0) return;
  ChainSearch& chain = chains_[IndexOf(owner)];
  const Presence known = Known(owner, key.hash);
  if (known == Presence::kPresent) chain.LearnPresent(hashes / owner.hashes_per_chunk - 1);
  if (known != Presence::kAbsent || !chain.LearnAbsent(hashes / owner.hashes_per_chunk - 1)) return;
  ++restarts_;
  int64_t low = chain.high();
  while (low > 0 && Known(owner, HashIndex(low * owner.hashes_per_chunk - 1)) != Presence::kPresent) --low;
  chain.ResetLow(low);
}

Presence HitSearch::Core::Get(GroupHash key) const {
  if (key.hash.value() < candidates_.hash_end()) {
    const Presence known = table_.Get(key);
    if (known != Presence::kUnknown) return known;
  }
  if (!candidates_.Has(key)) return Presence::kAbsent;
  const LookupUnit& owner = config_.UnitOf(key.group);
  if (owner.spec.kind != GroupKind::kFull) return Presence::kUnknown;
  const size_t index = IndexOf(owner);
  const int64_t hashes = key.hash.value() + 1;
  const int64_t present = doubting_ ? certain_[index] : chains_[index].low();
  if (hashes % owner.hashes_per_chunk == 0 && hashes / owner.hashes_per_chunk <= present) return Presence::kPresent;
  return doubting_ ? Presence::kAbsent : Presence::kUnknown;
}

std::optional<int64_t> HitSearch::Core::ChainLength(const LookupUnit& unit, int64_t limit) const {
  const ChainSearch& chain = chains_[IndexOf(unit)];
  // With everything known the first absent chunk ends the chain, whatever comes after it.
  if (query_.mode == SearchMode::kExhaustive) return std::min(chain.high(), limit);
  if (doubting_) return std::min(certain_[IndexOf(unit)], limit);
  if (chain.low() >= limit || chain.decided()) return std::min(chain.low(), limit);
  return std::nullopt;
}

// What the table says of a whole unit, without assumptions.
Presence HitSearch::Core::Known(const LookupUnit& unit, HashIndex hash) const {
  Presence all = Presence::kPresent;
  for (const GroupIndex group : unit.groups) {
    const Presence one = table_.Get({group, hash});
    if (one == Presence::kAbsent) return one;
    if (one == Presence::kUnknown) all = one;
  }
  return all;
}

void HitSearch::Core::Want(const LookupUnit& unit, HashIndex hash) {
  if (hash.value() < 0 || hash.value() >= candidates_.hash_end()) return;
  for (const GroupIndex group : unit.groups) {
    const GroupHash key{group, hash};
    if (table_.Get(key) == Presence::kUnknown && candidates_.Has(key)) wanted_.push_back(key);
  }
}

std::span<const GroupHash> HitSearch::Core::Batch() {
  std::sort(wanted_.begin(), wanted_.end());
  wanted_.erase(std::unique(wanted_.begin(), wanted_.end()), wanted_.end());
  return wanted_;
}

// The longest hit that can be, and the next shorter one where the longest would leave no token to compute: all units at
// once.
void HitSearch::Core::WantFirst() {
  bool proof = false;
  for (const LookupUnit& each : config_.units()) proof |= each.spec.eagle && each.spec.kind != GroupKind::kState;
  for (size_t i = 0; i < num_chains_; ++i) {
    if (chains_[i].high() > 0) WantChunk(unit(i), chains_[i].high() - 1);
  }
  if (is_dear_) WantSections();
  const Tokens hashed(candidates_.hash_end() * config_.hash_block_size().value());
  Tokens top = RoundDown(std::min(candidates_.token_length(), hashed), config_.hit_alignment());
  if (proof) top -= config_.hit_alignment();
  const int64_t boundaries = top == query_.num_tokens ? 2 : 1;
  for (size_t i = num_chains_; i < config_.units().size(); ++i) WantRuns(unit(i), top, boundaries, kFirstRunChunksMax);
}

void HitSearch::Core::WantAnswer(const Question& question) {
  switch (question.kind) {
    case Question::Kind::kChain:
      return WantSections();
    case Question::Kind::kPartial:
      WantPartials(question);
      return WantBoundaries(question.boundary);
    case Question::Kind::kBoundary:
      Want(unit(question.unit), question.hash);
      return WantBoundaries(question.boundary);
    case Question::Kind::kTail:
      WantTails(question.boundary);
      if (query_.trust == ChainTrust::kIndependent) WantProof(question.boundary);
      return;
  }
}

void HitSearch::Core::WantSections() {
  for (size_t i = 0; i < num_chains_; ++i) {
    const int64_t probes = is_dear_ ? SectionsOf(chains_[i].chunks()) : kSectionProbes;
    chains_[i].ForEachSection(probes, [this, i](int64_t chunk) { WantChunk(unit(i), chunk); });
  }
}

void HitSearch::Core::WantPartials(const Question& question) {
  for (size_t i = 0; i < num_chains_; ++i) {
    const int64_t per_chunk = unit(i).hashes_per_chunk;
    int64_t first = chains_[i].low() * per_chunk;
    if (i == question.unit) {
      first = question.hash.value() / per_chunk * per_chunk;
    } else if (!chains_[i].decided()) {
      continue;
    }
    for (int64_t hash = first; hash < first + per_chunk - 1; ++hash) Want(unit(i), HashIndex(hash));
  }
}

void HitSearch::Core::WantTails(Tokens hit) {
  const int64_t first = hit / config_.hash_block_size() - 1;
  for (const LookupUnit& unit : config_.units()) {
    if (UnitPresence(*this, unit, HashIndex(first)) == Presence::kPresent) continue;
    const int64_t end = CeilDiv(hit, unit.spec.block_size) * unit.hashes_per_chunk;
    for (int64_t hash = first; hash < end; ++hash) Want(unit, HashIndex(hash));
  }
}

// The next boundaries from `top` down, for every unit but full attention, so that units do not take turns.
void HitSearch::Core::WantBoundaries(Tokens top) {
  for (size_t i = num_chains_; i < config_.units().size(); ++i) {
    WantRuns(unit(i), RoundDown(top, config_.hit_alignment()), batch_boundaries_, INT64_MAX);
  }
  batch_boundaries_ = std::min(batch_boundaries_ * 2, kBatchBoundariesMax);
}

HitSearch::Core::Run HitSearch::Core::RunAt(const LookupUnit& unit, int64_t boundary) const {
  const int64_t block = unit.spec.block_size.value();
  switch (unit.spec.kind) {
    case GroupKind::kWindow: {
      const int64_t end = boundary / block;
      const int64_t read = CeilDiv(unit.spec.window.value() - 1, block);
      if (unit.spec.eagle) return {std::max<int64_t>(end - read, 0), end + 1, unit.hashes_per_chunk};
      return {std::max<int64_t>(end - std::max<int64_t>(read, 1), 0), end, unit.hashes_per_chunk};
    }
    case GroupKind::kState: {
      const int64_t hashes = alignment() < block ? 1 : unit.hashes_per_chunk;
      const int64_t end = boundary / config_.hash_block_size().value() / hashes;
      return {end - 1, end, hashes};
    }
    case GroupKind::kChunked: {
      const int64_t attention = unit.spec.chunk.value();
      return {boundary / attention * attention / block, boundary / block, unit.hashes_per_chunk};
    }
    case GroupKind::kFull:
      break;
  }
  TENURE_CHECK(false);
}

// Asks for the runs at `boundaries` boundaries from `top` down, `chunks_max` chunks at most, except at those that a
// known absence refutes. Each chunk is looked at once: `scanned` and `absent` (the lowest absence seen) only go down.
void HitSearch::Core::WantRuns(const LookupUnit& unit, Tokens top, int64_t boundaries, int64_t chunks_max) {
  int64_t scanned = INT64_MAX;
  int64_t absent = INT64_MAX;
  int64_t asked = INT64_MAX;
  for (int64_t boundary = top.value(); boundary > 0 && boundaries > 0 && chunks_max > 0;
       boundary -= alignment(), --boundaries) {
    const Run run = RunAt(unit, boundary);
    for (scanned = std::min(scanned, run.end); scanned > run.first; --scanned) {
      if (UnitPresence(*this, unit, HashIndex(scanned * run.hashes - 1)) == Presence::kAbsent) absent = scanned - 1;
    }
    if (absent < run.end) continue;
    for (int64_t chunk = std::min(asked, run.end) - 1; chunk >= run.first && chunks_max > 0; --chunk, --chunks_max) {
      Want(unit, HashIndex((chunk + 1) * run.hashes - 1));
    }
    asked = run.first;
  }
}

// Whether the chunk in which `hit` ends is loaded whole, under its own key, though the hit covers a part of it.
bool HitSearch::Core::EndsAtChunk(const Hit& hit, const LookupUnit& unit) const {
  const Tokens end = unit.spec.block_size * CeilDiv(hit.length, unit.spec.block_size);
  return end != hit.length && std::all_of(unit.groups.begin(), unit.groups.end(), [&hit, end](GroupIndex group) {
           return hit.tails[static_cast<size_t>(group.value())] == end;
         });
}

// Fills certain_ for `hit`; true if no chunk is assumed beyond it.
bool HitSearch::Core::AllCertain(const Hit& hit) {
  bool all = true;
  for (size_t i = 0; i < num_chains_; ++i) {
    const int64_t per_chunk = unit(i).hashes_per_chunk;
    int64_t chunks = hit.length / unit(i).spec.block_size;
    if (EndsAtChunk(hit, unit(i))) ++chunks;
    while (chunks < chains_[i].low() && Known(unit(i), HashIndex((chunks + 1) * per_chunk - 1)) == Presence::kPresent)
      ++chunks;
    certain_[i] = chunks;
    all &= chunks >= chains_[i].low();
  }
  return all;
}

// Whether `hit` stands without the chunks that are only assumed; if not, wanted_ has what would tell.
bool HitSearch::Core::Verify(const Hit& hit) {
  if (AllCertain(hit)) return true;
  const bool miss = hit.length.value() == 0;
  if (FellBelow(hit.length) || MayHaveLost(hit.length) || (miss && has_lone_proof_)) WantAssumed();
  if (miss || !wanted_.empty()) return wanted_.empty();
  WantProof(hit.length);
  if (!wanted_.empty()) return false;
  // With one or two units the rule only grows with a chain, so what two lengths agree on is the answer. With more it is
  // enough that the hit is sound.
  if (config_.units().size() > 2 && Proven(hit.length)) return true;
  doubting_ = true;
  const auto outcome = FindHit(config_, query_.num_hashes, query_.num_tokens, *this);
  doubting_ = false;
  if (const auto* question = std::get_if<Question>(&outcome)) {
    WantAnswer(*question);
  } else if (std::get<Hit>(outcome) != hit) {
    WantAssumed();
  }
  return wanted_.empty();
}

// In fine mode the whole prompt may be there while no shorter boundary inside its last chunk is, and the hit falls far.
// Had the chain ended earlier, a longer hit might have been found, so there the assumption is not on the safe side.
bool HitSearch::Core::FellBelow(Tokens hit) const {
  if (!config_.fine() || candidates_.token_length() != query_.num_tokens) return false;
  if (hit + config_.hit_alignment() >= query_.num_tokens) return false;
  const auto whole = FindBoundary(config_, {query_.num_hashes, query_.num_tokens, /*apply_eagle=*/true}, *this);
  return std::get<Tokens>(whole) == query_.num_tokens;
}

// vLLM's passes let an eagle window prove itself once and then not again, so with three units or more the hit may jump
// over a boundary that a shorter chain would have led to. True if one above `hit` could be loaded by all that is known.
bool HitSearch::Core::MayHaveLost(Tokens hit) const {
  if (!has_eagle_window_ || config_.units().size() < 3) return false;
  Tokens top = candidates_.token_length();
  for (size_t i = 0; i < num_chains_; ++i) top = std::min(top, unit(i).spec.block_size * chains_[i].low());
  for (top = RoundDown(top, config_.hit_alignment()); top > hit; top -= config_.hit_alignment()) {
    bool possible = true;
    for (size_t i = num_chains_; i < config_.units().size() && possible; ++i) possible = MayLoad(unit(i), top);
    if (possible) return true;
  }
  return false;
}

// No chunk that a load at `boundary` reads is known to be absent.
bool HitSearch::Core::MayLoad(const LookupUnit& unit, Tokens boundary) const {
  const Run run = RunAt(unit, boundary.value());
  const int64_t proof = unit.spec.kind == GroupKind::kWindow && unit.spec.eagle ? 1 : 0;
  for (int64_t chunk = run.end - proof - 1; chunk >= run.first; --chunk) {
    if (UnitPresence(*this, unit, HashIndex((chunk + 1) * run.hashes - 1)) == Presence::kAbsent) return false;
  }
  return true;
}

// The chunks that an eagle chain must have past the hit.
void HitSearch::Core::WantProof(Tokens hit) {
  for (size_t i = 0; i < num_chains_; ++i) {
    const GroupSpec& spec = unit(i).spec;
    if (!spec.eagle) continue;
    const int64_t end = CeilDiv(hit + std::min(config_.hit_alignment(), spec.block_size), spec.block_size);
    for (int64_t chunk = hit / spec.block_size; chunk < std::min(end, chains_[i].low()); ++chunk)
      WantChunk(unit(i), chunk);
  }
}

// Whether every unit is known to have its run at `hit` and, if eagle, the proof after it; the load set of chains is
// granted.
bool HitSearch::Core::Proven(Tokens hit) const {
  for (size_t i = 0; i < num_chains_; ++i) {
    const GroupSpec& spec = unit(i).spec;
    const Tokens proof = hit + std::min(config_.hit_alignment(), spec.block_size);
    if (spec.eagle && spec.block_size * certain_[i] < proof) return false;
  }
  for (size_t i = num_chains_; i < config_.units().size(); ++i) {
    const Run run = RunAt(unit(i), hit.value());
    for (int64_t chunk = run.first; chunk < run.end; ++chunk) {
      const HashIndex hash((chunk + 1) * run.hashes - 1);
      if (UnitPresence(*this, unit(i), hash) != Presence::kPresent) return false;
    }
  }
  return true;
}

// Rarely needed, with three units or more: vLLM's passes let an eagle window off its proof depending on where the chain
// ended, so only the chain's true length tells.
void HitSearch::Core::WantAssumed() {
  for (size_t i = 0; i < num_chains_; ++i) {
    const int64_t end = std::min(chains_[i].low(), certain_[i] + kBatchBoundariesMax);
    for (int64_t chunk = certain_[i]; chunk < end; ++chunk) WantChunk(unit(i), chunk);
  }
  if (!wanted_.empty()) ++restarts_;
}

HitSearch::HitSearch(const CacheConfig& config) : core_(std::make_unique<Core>(config)) {}
HitSearch::~HitSearch() = default;
void HitSearch::Start(const Query& query) { core_->Start(query); }
std::span<const GroupHash> HitSearch::Step() { return core_->Step(); }
void HitSearch::Learn(std::span<const Presence> answers) { core_->Learn(answers); }
void HitSearch::LearnKey(GroupHash key, Presence presence) { core_->LearnKey(key, presence); }
const Hit& HitSearch::hit() const { return core_->hit(); }
int64_t HitSearch::restarts() const { return core_->restarts(); }

}  // namespace tenure::kv
