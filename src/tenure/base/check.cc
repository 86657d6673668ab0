#include "tenure/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace tenure {

void CheckFailed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "tenure: broken invariant %s at %s:%d\n", condition, file, line);
  std::abort();
}

}  // namespace tenure
