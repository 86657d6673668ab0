// The lease mismatches of a process, shared by its endpoints and its bootstrap server. With the interpreter's lock
// held.
#pragma once

#include <memory>

#include "tenure/handoff/mismatch_board.h"

namespace tenure::python {

class BoardHandle {
 public:
  const std::shared_ptr<handoff::MismatchBoard>& board() const { return board_; }

 private:
  std::shared_ptr<handoff::MismatchBoard> board_ = std::make_shared<handoff::MismatchBoard>();
};

}  // namespace tenure::python
