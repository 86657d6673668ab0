// A connection to one peer's receiver, with the peer's memory keys, and the posts that run over it.
//
// The bytes of a post go as UCX's writes where a network card or a GPU takes part (`writes` below), and a flush tells
// that they are there; otherwise as messages (ucx_message.h), and the peer tells.
//
// Used by the thread of its worker; callbacks of UCX come from within UcxWorker::Progress and from the calls below.
// Outlives its posts: a post is gone when nothing of UCX refers to it.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tenure/transfer/ucx_address.h"
#include "tenure/transfer/ucx_message.h"
#include "tenure/transfer/ucx_transport.h"
#include "tenure/transfer/ucx_worker.h"
#include "tenure/transfer/write_list.h"

namespace tenure::transfer {

class UcxEndpoint {
 public:
  // Begins to connect, with a first message `id` that the peer answers. `own_rdma`: whether this process has a network
  // card that writes by itself too.
  static absl::StatusOr<std::unique_ptr<UcxEndpoint>> Create(UcxWorker& worker, const UcxAddress& address,
                                                             bool own_rdma, uint64_t id);
  // Once it is closed(), or released.
  ~UcxEndpoint();
  UcxEndpoint(const UcxEndpoint&) = delete;
  UcxEndpoint& operator=(const UcxEndpoint&) = delete;

  // The writes of a post with the peer's memory as its address has it.
  absl::StatusOr<std::vector<PlacedWrite>> Place(const std::vector<pd::MemoryKey>& memory,
                                                 const std::vector<pd::WritePiece>& pieces);
  uint64_t id() const { return id_; }
  // What the peer says to the first message.
  void OnAnswer(Verdict verdict);
  // It has, and is the process that the address means. Nothing of a post is sent before.
  bool connected() const { return connected_; }
  // Whether bytes go as UCX's writes.
  bool writes() const { return writes_; }
  // What parts name.
  uint64_t receiver() const { return receiver_; }
  // For UCX's writes, to a range of the memory of the last Place; the same bytes make one key.
  absl::StatusOr<ucp_rkey_h> Key(const std::string& packed);

  // Not OK: the connection is broken and StartClose is due.
  const absl::Status& status() const { return error_; }
  void Fail(absl::Status status);

  // Without asking the peer; what is under way ends with an error.
  void StartClose();
  // Whether that is over.
  bool closed();
  // Gives back what the worker has lent, for a worker that ends before closed(); only destroy it afterwards.
  void Release();

  UcxWorker& worker() const { return worker_; }
  ucp_ep_h handle() const { return endpoint_; }

  size_t in_flight = 0;   // Writes and messages.
  size_t posts = 0;       // That refer to this.
  size_t unanswered = 0;  // Posts among them.
  MonotonicTime last_used;

 private:
  UcxEndpoint(UcxWorker& worker, uint64_t id, uint64_t receiver, bool writes)
      : worker_(worker), id_(id), receiver_(receiver), writes_(writes), placer_(UcxTransport::kKind) {}
  void SendFirst();

  UcxWorker& worker_;
  const uint64_t id_;
  const uint64_t receiver_;
  const bool writes_;
  ucp_ep_h endpoint_ = nullptr;
  absl::Status error_;
  bool connected_ = false;
  bool closing_ = false;
  ucs_status_ptr_t close_request_ = nullptr;
  PeerPlacer placer_;
  std::map<std::string, ucp_rkey_h> keys_;
};

// One post on its way over an endpoint. It does not move: UCX holds its address while `idle()` is false.
class UcxPost {
 public:
  // `id` is this process's own. `keys` by the peer's range, where the endpoint writes.
  UcxPost(UcxEndpoint& endpoint, uint64_t id, std::vector<PlacedWrite> writes, std::vector<ucp_rkey_h> keys,
          MonotonicTime deadline, WriteDone done);
  ~UcxPost();
  UcxPost(const UcxPost&) = delete;
  UcxPost& operator=(const UcxPost&) = delete;

  // Gives UCX some of what is left, and the flush after the last write. Whether there is more to give now.
  bool Pump();
  // What the peer says of its parts.
  void OnAnswer(Verdict verdict);
  // All bytes are at the peer.
  bool complete() const { return arrived_ && in_flight_ == 0 && error_.ok(); }
  // UCX has refused or ended a write.
  const absl::Status& status() const { return error_; }
  // Whether a byte may be on its way or at the peer.
  bool issued() const { return next_ > 0 || offset_ > 0; }
  // Whether UCX is done with this.
  bool idle() const { return in_flight_ == 0 && !flushing_; }

  UcxEndpoint& endpoint() const { return endpoint_; }
  uint64_t id() const { return id_; }
  MonotonicTime deadline() const { return deadline_; }
  bool answered() const { return done_ == nullptr; }
  // Calls `done`; once.
  void Answer(absl::Status status);

 private:
  struct Part;
  static void OnPut(void* request, ucs_status_t status, void* post);
  static void OnPart(void* request, ucs_status_t status, void* part);
  static void OnFlush(void* request, ucs_status_t status, void* post);
  void Put(const PlacedWrite& write);
  // The next part of a write; whether it was the last one.
  bool SendPart(const PlacedWrite& write);
  void Began();
  void Ended(void* request, ucs_status_t status);
  void Flush();
  void Failed(ucs_status_t status, const char* what);

  UcxEndpoint& endpoint_;
  const uint64_t id_;
  std::vector<PlacedWrite> writes_;
  uint64_t total_ = 0;  // Their bytes.
  std::vector<ucp_rkey_h> keys_;
  MonotonicTime deadline_;
  WriteDone done_;
  size_t next_ = 0;
  uint64_t offset_ = 0;  // Bytes of the next write that are under way.
  size_t in_flight_ = 0;
  bool flushing_ = false;
  bool arrived_ = false;
  absl::Status error_;
};

}  // namespace tenure::transfer
