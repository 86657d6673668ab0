#include "tenure/engine/faulty_pool_testing.h"

#include <vector>

#include "tenure/base/status.h"

namespace tenure::engine {
namespace {

// Asks `hook` about each object, and `ask` about those that it left, in one call.
template <typename Object, typename Answer, typename Hook, typename Ask>
absl::Status AskThrough(const Hook& hook, std::span<const Object> objects, std::span<Answer> answers, Ask ask) {
  std::vector<Object> left;
  std::vector<size_t> places;
  for (size_t i = 0; i < objects.size(); ++i) {
    const std::optional<Answer> answer = hook ? hook(objects[i]) : std::nullopt;
    if (answer) {
      answers[i] = *answer;
    } else {
      left.push_back(objects[i]);
      places.push_back(i);
    }
  }
  std::vector<Answer> answered(left.size());
  TENURE_RETURN_IF_ERROR(ask(std::span<const Object>(left), std::span<Answer>(answered)));
  for (size_t i = 0; i < places.size(); ++i) answers[places[i]] = answered[i];
  return absl::OkStatus();
}

}  // namespace

absl::Status FaultyPool::Probe(std::span<const store::ObjectKey> keys, std::span<store::KeyAnswer> answers) {
  TENURE_RETURN_IF_ERROR(Begin(Call::kProbe));
  return pool().Probe(keys, answers);
}

absl::Status FaultyPool::Put(std::span<const store::PutObject> objects, std::span<store::PutAnswer> answers) {
  TENURE_RETURN_IF_ERROR(Begin(Call::kPut));
  return AskThrough(on_put_, objects, answers,
                    [this](auto asked, auto answered) { return pool().Put(asked, answered); });
}

absl::Status FaultyPool::Get(std::span<const store::GetObject> objects, std::span<store::KeyAnswer> answers) {
  TENURE_RETURN_IF_ERROR(Begin(Call::kGet));
  return AskThrough(on_get_, objects, answers,
                    [this](auto asked, auto answered) { return pool().Get(asked, answered); });
}

absl::Status FaultyPool::Remove(std::span<const store::ObjectKey> keys, std::span<store::KeyAnswer> answers) {
  TENURE_RETURN_IF_ERROR(Begin(Call::kRemove));
  return pool().Remove(keys, answers);
}

}  // namespace tenure::engine
