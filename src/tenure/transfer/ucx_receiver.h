// The side of the ucx transport that is written to: it listens, takes parts of posts, checks each one against
// registered memory, copies it there and answers when a post is whole.
//
// UCX's own writes are not used for this where no network card does them: in UCX 1.13 a writer that dies in the middle
// of them ends the process that is written to (its answer to a broken connection is fatal to it). For the same reason
// connections are made through a listener and not from a worker's address: a writer that dies while it connects ends
// the other process there.
//
// Used by the thread of its worker; callbacks come from within UcxWorker::Progress, so a worker that runs on ends
// before this does.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "tenure/transfer/ucx_address.h"
#include "tenure/transfer/ucx_message.h"
#include "tenure/transfer/ucx_worker.h"

namespace tenure::transfer {

class UcxReceiver {
 public:
  // Listens at any free port of `host`. InvalidArgument for a host that is none of this machine, Unavailable when UCX
  // refuses.
  static absl::StatusOr<std::unique_ptr<UcxReceiver>> Create(UcxWorker& worker, const std::string& host);
  UcxReceiver(const UcxReceiver&) = delete;
  UcxReceiver& operator=(const UcxReceiver&) = delete;

  const UcxAddress& address() const { return address_; }
  // Closes connections whose writer has gone.
  void Sweep();
  // Closes all connections, and tells later ones that the address means nobody.
  void Stop();

  // Connections beyond them are closed; posts of one writer that are not whole, beyond them its connection is closed.
  static constexpr size_t kConnectionsMax = 4096;
  static constexpr size_t kPostsMax = Transport::kOpenPostsMax;

 private:
  struct Progress {
    uint64_t received = 0;
    bool answered = false;  // With an error, before it was whole.
  };
  struct Connection {
    std::map<uint64_t, Progress> posts;
    bool broken = false;
  };

  explicit UcxReceiver(UcxWorker& worker) : worker_(worker) {}
  absl::Status Listen(const std::string& host);
  void Accept(ucp_conn_request_h request);
  void OnPart(ucp_ep_h from, const UcxPart& part, const void* bytes, uint64_t size);
  Verdict Take(const UcxPart& part, const Progress& progress, const void* bytes, uint64_t size) const;
  void Answer(ucp_ep_h to, const UcxAnswer& answer);
  void Close(ucp_ep_h endpoint);

  UcxWorker& worker_;
  UcxAddress address_;
  bool stopped_ = false;
  std::map<ucp_ep_h, Connection> connections_;
};

}  // namespace tenure::transfer
