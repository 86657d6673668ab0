#include "bindings/mooncake_copy.h"

namespace tenure::python {

using store::KeyAnswer;
using store::PutAnswer;

absl::Status CheckBatch(size_t keys, size_t answers) {
  if (keys != answers) return InvalidArgument("answers has {} entries for {} keys; give one a key", answers, keys);
  if (keys > store::Pool::kBatchKeysMax) {
    return InvalidArgument("{} keys in one call; use at most {}", keys, store::Pool::kBatchKeysMax);
  }
  return absl::OkStatus();
}

absl::Status MooncakePut::AskBefore() {
  const MooncakeKeys& keys = batch_.keys;
  TENURE_ASSIGN_OR_RETURN(const std::vector<int64_t> before, batch_.client->Probe(keys));
  for (size_t i = 0; i < keys.size(); ++i) {
    if (before[i] == 1) {
      TENURE_ASSIGN_OR_RETURN(const int64_t size, batch_.client->SizeOf(keys[i]));
      answers_[i] = size < 0                                                  ? PutAnswer::kNotStored
                    : static_cast<uint64_t>(size) == batch_.pieces.BytesOf(i) ? PutAnswer::kExists
                                                                              : PutAnswer::kSizeDiffers;
    } else if (first_of_.emplace(keys[i], i).second) {
      put_.push_back(i);
      put_keys_.Append(keys[i]);
    }
  }
  return absl::OkStatus();
}

absl::Status MooncakePut::Copy() {
  MooncakePieces pieces;
  for (const size_t i : put_) pieces.Append(batch_.pieces[i]);
  TENURE_ASSIGN_OR_RETURN(codes_, batch_.client->Put(put_keys_, pieces));
  return absl::OkStatus();
}

absl::Status MooncakePut::AskAfter() {
  TENURE_ASSIGN_OR_RETURN(const std::vector<int64_t> after, batch_.client->Probe(put_keys_));
  for (size_t i = 0; i < put_.size(); ++i) {
    if (codes_[i] == mooncake_code::kNoSpace) {
      answers_[put_[i]] = PutAnswer::kRefusedFull;
    } else {
      answers_[put_[i]] = codes_[i] == 0 && after[i] == 1 ? PutAnswer::kStored : PutAnswer::kNotStored;
    }
  }
  // The second of two equal keys is there only if the first is.
  for (size_t i = 0; i < batch_.keys.size(); ++i) {
    const auto first = first_of_.find(batch_.keys[i]);
    if (first == first_of_.end() || first->second == i) continue;
    answers_[i] = store::IsKept(answers_[first->second]) ? PutAnswer::kExists : PutAnswer::kNotStored;
  }
  return absl::OkStatus();
}

absl::Status MooncakePut::Run() {
  TENURE_RETURN_IF_ERROR(AskBefore());
  if (!has_work()) return absl::OkStatus();
  TENURE_RETURN_IF_ERROR(Copy());
  return AskAfter();
}

absl::Status MooncakeGet::Copy() {
  TENURE_ASSIGN_OR_RETURN(codes_, batch_.client->Get(batch_.keys, batch_.pieces));
  return absl::OkStatus();
}

absl::Status MooncakeGet::AskAfter() {
  for (size_t i = 0; i < codes_.size(); ++i) {
    if (codes_[i] != mooncake_code::kTransferFailed) continue;
    TENURE_ASSIGN_OR_RETURN(const int64_t size, batch_.client->SizeOf(batch_.keys[i]));
    if (size >= 0 && static_cast<uint64_t>(size) != batch_.pieces.BytesOf(i)) codes_[i] = mooncake_code::kBadParameters;
  }
  return absl::OkStatus();
}

absl::Status MooncakeGet::Run() {
  TENURE_RETURN_IF_ERROR(Copy());
  return has_questions() ? AskAfter() : absl::OkStatus();
}

KeyAnswer MooncakeGet::AnswerOf(size_t key) const {
  const int64_t code = codes_[key];
  if (code >= 0) {
    return static_cast<uint64_t>(code) == batch_.pieces.BytesOf(key) ? KeyAnswer::kPresent : KeyAnswer::kSizeDiffers;
  }
  if (code == mooncake_code::kBadParameters) return KeyAnswer::kSizeDiffers;
  const bool absent =
      code == mooncake_code::kNotFound || code == mooncake_code::kNotReady || code == mooncake_code::kLeaseExpired;
  return absent ? KeyAnswer::kAbsent : KeyAnswer::kUnavailable;
}

}  // namespace tenure::python
