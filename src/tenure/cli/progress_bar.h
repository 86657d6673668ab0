// One line on a terminal that says how far a long command is; nothing anywhere else.
#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>

#include "absl/time/time.h"
#include "tenure/base/clock.h"
#include "tenure/base/units.h"

namespace tenure::cli {

class ProgressBar {
 public:
  // Draws at most ten times a second by `clock`; never when `visible` is false.
  ProgressBar(std::ostream& out, bool visible, const Clock& clock) : out_(out), visible_(visible), clock_(clock) {}
  ~ProgressBar() { Clear(); }
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  // `size` is absent where the end is not known.
  void Update(const std::string& what, Bytes done, std::optional<Bytes> size, int64_t requests);
  // Leaves the line empty for what is printed next.
  void Clear();

 private:
  std::ostream& out_;
  bool visible_;
  const Clock& clock_;
  MonotonicTime next_draw_ = MonotonicTime::Min();
  bool drawn_ = false;
};

}  // namespace tenure::cli
