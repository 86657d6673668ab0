// Threads that still wait for Mooncake when the interpreter goes away.
//
// Python before 3.14 ends a thread that asks for the interpreter's lock by then, by unwinding it; in a destructor of
// Mooncake's, or a frame of ours that must not be unwound, that ends the process. A thread marked here waits for the
// end of the process instead.
#pragma once

namespace tenure::python {

// The calling thread may be left behind, from now on.
void MarkLeavable();

// A marked thread is left behind: to be called before the interpreter goes away. Any thread; idempotent.
void LeaveMarkedThreads();

}  // namespace tenure::python
