#include "tenure/engine/save_tracker.h"

#include <algorithm>

namespace tenure::engine {

void SaveTracker::Extend(Tokens count, std::span<const int32_t> token_ids) {
  length_ += count;
  token_ids_.insert(token_ids_.end(), token_ids.begin(), token_ids.end());
}

void SaveTracker::Rewind(Tokens computed, Tokens block) {
  length_ = std::min(length_, computed);
  saved_ = std::min(saved_, RoundDown(computed, block));
  tail_published_ = false;
  if (token_ids_.size() > static_cast<size_t>(length_.value())) token_ids_.resize(static_cast<size_t>(length_.value()));
}

std::optional<SaveStep> SaveTracker::Next(const kv::CacheConfig& config, Tokens num_prompt_tokens, int64_t num_hashes) {
  const Tokens block = config.scheduler_block_size();
  const Tokens hashed = config.hash_block_size() * num_hashes;
  const Tokens whole = RoundDown(std::min(length_, hashed), block);
  const bool publish_tail =
      config.fine() && !tail_published_ && num_prompt_tokens > Tokens() && num_prompt_tokens <= length_;
  if (whole < saved_ + block && !publish_tail) return std::nullopt;
  SaveStep step{.length = std::max(whole, saved_), .publish_tail = publish_tail, .tokens = {saved_, {}}};
  const auto known = static_cast<int64_t>(token_ids_.size());
  const int64_t begin = std::min(saved_.value(), known);
  const int64_t end = std::min(step.length.value(), known);
  step.tokens.ids.assign(token_ids_.begin() + begin, token_ids_.begin() + end);
  saved_ = step.length;
  tail_published_ = tail_published_ || publish_tail;
  return step;
}

}  // namespace tenure::engine
