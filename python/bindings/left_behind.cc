#include "bindings/left_behind.h"

#include <unistd.h>

#include <cstdlib>
#include <exception>

namespace tenure::python {
namespace {

thread_local bool is_leavable = false;
std::terminate_handler previous_handler = nullptr;

[[noreturn]] void WaitForTheEnd() {
  while (is_leavable) pause();
  if (previous_handler != nullptr) previous_handler();
  std::abort();
}

}  // namespace

void MarkLeavable() { is_leavable = true; }

void LeaveMarkedThreads() {
  static const bool installed = [] {
    previous_handler = std::set_terminate(&WaitForTheEnd);
    return true;
  }();
  static_cast<void>(installed);
}

}  // namespace tenure::python
