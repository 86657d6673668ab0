// A connection to one peer's worker, with the peer's memory keys, and the posts that run over it.
//
// Used by the thread of its worker; callbacks of UCX come from within UcxWorker::Progress and from the calls below.
// Outlives its posts: a post is gone when nothing of UCX refers to it.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tenure/transfer/ucx_worker.h"
#include "tenure/transfer/write_list.h"

namespace tenure::transfer {

class UcxEndpoint {
 public:
  // `address` as the peer's UcxWorker says it. Nothing is sent yet.
  static absl::StatusOr<std::unique_ptr<UcxEndpoint>> Create(UcxWorker& worker, const std::string& address);
  // Once it is closed(), or released.
  ~UcxEndpoint();
  UcxEndpoint(const UcxEndpoint&) = delete;
  UcxEndpoint& operator=(const UcxEndpoint&) = delete;

  // The writes of a post with the peer's memory as its address has it.
  absl::StatusOr<std::vector<PlacedWrite>> Place(const std::vector<pd::MemoryKey>& memory,
                                                 const std::vector<pd::WritePiece>& pieces);
  // For a range of the memory of the last Place; the same bytes make one key.
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

  size_t puts_in_flight = 0;
  size_t posts = 0;       // That refer to this.
  size_t unanswered = 0;  // Posts among them.
  MonotonicTime last_used;

 private:
  explicit UcxEndpoint(UcxWorker& worker) : worker_(worker) {}

  UcxWorker& worker_;
  ucp_ep_h endpoint_ = nullptr;
  absl::Status error_;
  bool closing_ = false;
  ucs_status_ptr_t close_request_ = nullptr;
  std::vector<pd::MemoryKey> memory_;
  MemoryMap map_;
  std::map<std::string, ucp_rkey_h> keys_;
};

// One post on its way over an endpoint. It does not move: UCX holds its address while `idle()` is false.
class UcxPost {
 public:
  UcxPost(UcxEndpoint& endpoint, std::vector<PlacedWrite> writes, std::vector<ucp_rkey_h> keys, MonotonicTime deadline,
          WriteDone done);
  ~UcxPost();
  UcxPost(const UcxPost&) = delete;
  UcxPost& operator=(const UcxPost&) = delete;

  // Gives UCX some of the writes that are left, and the flush after the last one. Whether there is more to give now.
  bool Pump();
  // All bytes are at the peer.
  bool complete() const { return flushed_ && in_flight_ == 0 && error_.ok(); }
  // UCX has refused or ended a write.
  const absl::Status& status() const { return error_; }
  // Whether a byte may be on its way or at the peer.
  bool issued() const { return next_ > 0; }
  // Whether UCX is done with this.
  bool idle() const { return in_flight_ == 0 && !flushing_; }

  UcxEndpoint& endpoint() const { return endpoint_; }
  MonotonicTime deadline() const { return deadline_; }
  bool answered() const { return done_ == nullptr; }
  // Calls `done`; once.
  void Answer(absl::Status status);

 private:
  static void OnPut(void* request, ucs_status_t status, void* post);
  static void OnFlush(void* request, ucs_status_t status, void* post);
  void Put(const PlacedWrite& write);
  void Flush();
  void Failed(ucs_status_t status, const char* what);

  UcxEndpoint& endpoint_;
  std::vector<PlacedWrite> writes_;
  std::vector<ucp_rkey_h> keys_;  // By the peer's range.
  MonotonicTime deadline_;
  WriteDone done_;
  size_t next_ = 0;
  size_t in_flight_ = 0;
  bool flushing_ = false;
  bool flushed_ = false;
  absl::Status error_;
};

}  // namespace tenure::transfer
