// Warnings that peers can cause at any rate: the first ten in ten seconds are logged, the rest is counted. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "tenure/base/clock.h"
#include "tenure/base/log.h"

namespace tenure::handoff {

class PacedLog {
 public:
  static constexpr absl::Duration kPeriod = absl::Seconds(10);
  static constexpr int64_t kLinesAPeriod = 10;

  // Each line begins with `who`.
  PacedLog(const Clock& clock, std::string who) : clock_(clock), who_(std::move(who)) {}

  // Whether it was logged.
  bool Warn(std::string_view text) {
    const MonotonicTime now = clock_.Now();
    if (now >= period_end_) {
      if (lines_ > kLinesAPeriod) LogWarning("{}: {} more warnings were left out", who_, lines_ - kLinesAPeriod);
      lines_ = 0;
      period_end_ = now + kPeriod;
    }
    if (++lines_ > kLinesAPeriod) return false;
    LogWarning("{}: {}", who_, text);
    return true;
  }
  void Warn(const std::vector<std::string>& texts) {
    for (const std::string& text : texts) Warn(std::string_view(text));
  }

 private:
  const Clock& clock_;
  const std::string who_;
  MonotonicTime period_end_ = MonotonicTime::Min();
  int64_t lines_ = 0;
};

}  // namespace tenure::handoff
