// Which process made an object. A forked child has a copy without its threads, whose locks may be held by nobody: the
// child leaves such a copy as it is, since ending it would wait for ever.
#pragma once

#include <unistd.h>

namespace tenure::python {

class ProcessMark {
 public:
  // Whether this is a forked child of the process that made it.
  bool is_forked() const { return getpid() != pid_; }

 private:
  const pid_t pid_ = getpid();
};

}  // namespace tenure::python
