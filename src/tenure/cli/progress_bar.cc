#include "tenure/cli/progress_bar.h"

#include <fmt/format.h>

#include <algorithm>

namespace tenure::cli {
namespace {

constexpr int64_t kWidth = 30;
constexpr absl::Duration kDrawInterval = absl::Milliseconds(100);
constexpr std::string_view kClearLine = "\r\x1b[K";

}  // namespace

void ProgressBar::Update(const std::string& what, Bytes done, std::optional<Bytes> size, int64_t requests) {
  if (!visible_) return;
  const MonotonicTime now = clock_.Now();
  if (now < next_draw_) return;
  next_draw_ = now + kDrawInterval;
  drawn_ = true;
  if (!size || *size <= Bytes(0)) {
    out_ << kClearLine << fmt::format("{}: {} requests", what, requests) << std::flush;
    return;
  }
  const int64_t filled = std::clamp<int64_t>(done.value() * kWidth / size->value(), 0, kWidth);
  out_ << kClearLine
       << fmt::format("{} [{:<{}}] {:3} % {} requests", what, std::string(static_cast<size_t>(filled), '='), kWidth,
                      std::min<int64_t>(100, done.value() * 100 / size->value()), requests)
       << std::flush;
}

void ProgressBar::Clear() {
  if (drawn_) out_ << kClearLine << std::flush;
  drawn_ = false;
}

}  // namespace tenure::cli
