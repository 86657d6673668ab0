#include "bindings/direct_mooncake.h"

#include <algorithm>
#include <thread>

#include "bindings/lock_guard.h"
#include "tenure/base/log.h"
#include "tenure/base/status.h"

namespace tenure::python {
namespace {

template <typename Object>
absl::StatusOr<MooncakeBatch> BatchOf(const MooncakePool& pool, std::span<const Object> objects) {
  std::vector<store::ObjectKey> keys;
  for (const Object& object : objects) keys.push_back(object.key);
  TENURE_ASSIGN_OR_RETURN(MooncakeBatch batch, pool.BatchOf(keys));
  std::vector<MooncakePiece> pieces;
  for (const Object& object : objects) {
    pieces.clear();
    for (const auto& segment : object.segments) {
      if (segment.size > 0) pieces.push_back({reinterpret_cast<uintptr_t>(segment.data), segment.size});
    }
    batch.pieces.Append(pieces);
  }
  return batch;
}

absl::Status Register(MooncakeClient& client, std::span<const MooncakePiece> regions) {
  for (size_t i = 0; i < regions.size(); ++i) {
    const absl::Status status = client.RegisterBuffer(regions[i]);
    if (status.ok()) continue;
    for (const MooncakePiece& region : regions.first(i)) client.UnregisterBuffer(region).IgnoreError();
    return status;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::shared_ptr<DirectMooncake>> DirectMooncake::Create(std::shared_ptr<MooncakePool> pool,
                                                                       std::shared_ptr<engine::Copier> device,
                                                                       std::vector<MooncakePiece> regions) {
  const LockReleased unlocked;
  TENURE_ASSIGN_OR_RETURN(std::shared_ptr<MooncakeClient> client, pool->Client());
  TENURE_RETURN_IF_ERROR(pool->Run(pool->options().setup_timeout, [client, device, regions] {
    return device->OnDevice([&] { return Register(*client, regions); });
  }));
  return std::shared_ptr<DirectMooncake>(new DirectMooncake(std::move(pool), std::move(device), std::move(regions)));
}

void DirectMooncake::End() {
  const LockReleased unlocked;
  const std::vector<MooncakePiece> regions = std::exchange(regions_, {});
  absl::StatusOr<std::shared_ptr<MooncakeClient>> client = mooncake_->Client();
  if (regions.empty() || !client.ok()) return;  // The store's end is the end of what it knows.
  const absl::Status status =
      mooncake_->Run(mooncake_->options().call_timeout, [client = *std::move(client), device = device_, regions] {
        return device->OnDevice([&] {
          absl::Status first;
          for (const MooncakePiece& region : regions) first.Update(client->UnregisterBuffer(region));
          return first;
        });
      });
  if (!status.ok()) LogWarning("Mooncake knows of the engine's KV memory until its store ends: {}", Message(status));
}

template <typename MooncakeCopy>
absl::Status DirectMooncake::Copy(const char* what, std::shared_ptr<MooncakeCopy> copy) {
  const MonotonicTime begin = clock_.Now();
  const absl::Status status = mooncake_->RunToItsEnd([device = device_, copy, options = mooncake_->options()] {
    const MonotonicClock clock;
    const MonotonicTime start = clock.Now();
    absl::Status done = device->OnDevice([&copy] { return copy->Copy(); });
    if (MayGoOn(copy->codes(), clock.Now() - start, options.given_up_after)) {
      std::this_thread::sleep_for(absl::ToChronoNanoseconds(options.late_bytes_max));
    }
    return done;
  });
  const absl::Duration took = clock_.Now() - begin;
  if (took > mooncake_->options().transfer_timeout) {
    LogWarning("a {} of Mooncake ended after {:.1f} s; the blocks that it names were kept until then", what,
               absl::ToDoubleSeconds(took));
  }
  return status;
}

absl::Status DirectMooncake::Put(std::span<const store::PutObject> objects, std::span<store::PutAnswer> answers) {
  TENURE_RETURN_IF_ERROR(CheckBatch(objects.size(), answers.size()));
  TENURE_RETURN_IF_ERROR(SizesOf(objects).status());
  std::ranges::fill(answers, store::PutAnswer::kNotStored);
  if (objects.empty()) return absl::OkStatus();
  TENURE_ASSIGN_OR_RETURN(MooncakeBatch batch, BatchOf(*mooncake_, objects));
  const absl::Duration timeout = mooncake_->options().call_timeout;
  const auto put = std::make_shared<MooncakePut>(std::move(batch));
  TENURE_RETURN_IF_ERROR(mooncake_->Run(timeout, [put] { return put->AskBefore(); }));
  if (put->has_work()) {
    TENURE_RETURN_IF_ERROR(Copy("put", put));
    TENURE_RETURN_IF_ERROR(mooncake_->Run(timeout, [put] { return put->AskAfter(); }));
  }
  std::ranges::copy(put->answers(), answers.begin());
  mooncake_->CountPuts(objects, answers);
  return absl::OkStatus();
}

absl::Status DirectMooncake::Get(std::span<const store::GetObject> objects, std::span<store::KeyAnswer> answers) {
  TENURE_RETURN_IF_ERROR(CheckBatch(objects.size(), answers.size()));
  TENURE_RETURN_IF_ERROR(SizesOf(objects).status());
  std::ranges::fill(answers, store::KeyAnswer::kUnavailable);
  if (objects.empty()) return absl::OkStatus();
  TENURE_ASSIGN_OR_RETURN(MooncakeBatch batch, BatchOf(*mooncake_, objects));
  const auto get = std::make_shared<MooncakeGet>(std::move(batch));
  TENURE_RETURN_IF_ERROR(Copy("get", get));
  if (get->has_questions()) {
    TENURE_RETURN_IF_ERROR(mooncake_->Run(mooncake_->options().call_timeout, [get] { return get->AskAfter(); }));
  }
  for (size_t i = 0; i < objects.size(); ++i) answers[i] = get->AnswerOf(i);
  mooncake_->CountGets(answers);
  return absl::OkStatus();
}

}  // namespace tenure::python
