// Gives up the interpreter's lock where the caller may or may not hold it: destructors that wait for threads which need
// it.
#pragma once

#include <Python.h>

namespace tenure::python {

// Takes the lock. Where the interpreter is going away, Python before 3.14 ends the thread by unwinding it instead; a
// frame that must not be unwound turns that into std::terminate, which threads of ours answer by waiting
// (left_behind.h).
class LockHeld {
 public:
  LockHeld() noexcept : state_(PyGILState_Ensure()) {}
  ~LockHeld() { PyGILState_Release(state_); }
  LockHeld(const LockHeld&) = delete;
  LockHeld& operator=(const LockHeld&) = delete;

 private:
  PyGILState_STATE state_;
};

// Gives up the lock where the caller may or may not hold it: destructors that wait for threads which need it.
class LockReleased {
 public:
  LockReleased() : state_(PyGILState_Check() != 0 ? PyEval_SaveThread() : nullptr) {}
  ~LockReleased() {
    if (state_ != nullptr) PyEval_RestoreThread(state_);
  }
  LockReleased(const LockReleased&) = delete;
  LockReleased& operator=(const LockReleased&) = delete;

 private:
  PyThreadState* state_;
};

}  // namespace tenure::python
