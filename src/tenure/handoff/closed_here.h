// Whether a worker's process on this very host has ended, asked of the kernel.
//
// A process's sockets are closed when the last of its threads has ended, and none of them writes then. Only this host's
// own kernel is believed: from another host a refusal may also come of a firewall, while the process lives.
#pragma once

#include <string>

namespace tenure::handoff {

// True: `address`, "tcp://HOST:PORT", is this host's own, and nobody listens there. False: somebody does, or it is not
// known. Never waits. Any thread.
bool IsClosedHere(const std::string& address);

}  // namespace tenure::handoff
