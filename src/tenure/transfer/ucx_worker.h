// UCX's context and worker: the memory that peers may write to, and progress.
//
// Made and used by one thread at a time. UCX's part of one that listens stays (ucx_retired.h).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tenure/transfer/memory_map.h"
#include "tenure/transfer/socket_address.h"
#include "tenure/transfer/transport.h"
#include "tenure/transfer/ucx_library.h"
#include "tenure/transfer/ucx_message.h"

namespace tenure::transfer {

class UcxWorker {
 public:
  // `transports` as UCX_TLS has it.
  static absl::StatusOr<std::unique_ptr<UcxWorker>> Create(const std::string& transports);
  ~UcxWorker();
  UcxWorker(const UcxWorker&) = delete;
  UcxWorker& operator=(const UcxWorker&) = delete;

  const UcxLibrary& ucx() const { return ucx_; }
  ucp_worker_h handle() const { return worker_; }

  // As Transport::Register.
  absl::Status Register(const std::vector<MemoryRange>& ranges);
  // Nobody writes to it or from it any more.
  void ReleaseMemory();
  const MemoryMap& memory_map() const { return map_; }
  // What UCX calls the range with this place in memory_map(), and whether it is the host's or a GPU's.
  ucp_mem_h memory(size_t range) const { return memory_[range]; }
  ucs_memory_type_t memory_type(size_t range) const { return types_[range]; }

  bool has_device_memory() const;
  // Framed, for peers.
  const std::vector<pd::MemoryKey>& keys() const { return keys_; }

  // Takes connections at any free port of this address, once: calls `handler` with `argument` from within Progress()
  // for each one. The port; Unavailable when UCX refuses.
  absl::StatusOr<uint16_t> Listen(const SocketAddress& own, ucp_listener_conn_callback_t handler, void* argument);
  // Calls `handler` with `argument` from within Progress() for every such message.
  absl::Status Handle(UcxMessage message, ucp_am_recv_callback_t handler, void* argument);
  // Calls `take` from within Progress() for every answer of a peer.
  absl::Status TakeAnswers(std::function<void(const UcxAnswer&)> take);

  // Moves what is under way; whether anything moved.
  bool Progress() { return ucx_.worker_progress(worker_) != 0; }
  // Becomes readable when there is something to move; only after Arm has returned true.
  int event_descriptor() const { return event_descriptor_; }
  bool Arm() { return ucx_.worker_arm(worker_) == UCS_OK; }

 private:
  explicit UcxWorker(const UcxLibrary& ucx) : ucx_(ucx) {}
  absl::Status Start(const std::string& transports);
  absl::StatusOr<std::string> PackKey(ucp_mem_h memory);

  const UcxLibrary& ucx_;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  ucp_listener_h listener_ = nullptr;
  int event_descriptor_ = -1;
  std::function<void(const UcxAnswer&)> take_answer_;
  std::vector<MemoryRange> ranges_;
  std::vector<ucp_mem_h> memory_;
  std::vector<ucs_memory_type_t> types_;
  std::vector<pd::MemoryKey> keys_;
  MemoryMap map_;
};

}  // namespace tenure::transfer
