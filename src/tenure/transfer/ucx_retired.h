// What is left of UCX transports that have ended.
//
// A connection that UCX 1.13's thread is taking in when its listener is destroyed ends the process, and nothing tells
// whether there is one. So listeners and their workers stay until the process ends, and one thread goes on telling
// writers that the peer has gone: a port and some descriptors for each transport that a process makes.
#pragma once

#include <memory>

#include "tenure/transfer/ucx_receiver.h"
#include "tenure/transfer/ucx_worker.h"

namespace tenure::transfer {

// Of both, which have stopped, and whose thread ends or goes on without them; nothing of UCX refers to anything else
// any more. From any thread.
void RetireUcx(std::unique_ptr<UcxWorker> worker, std::unique_ptr<UcxReceiver> receiver);

}  // namespace tenure::transfer
