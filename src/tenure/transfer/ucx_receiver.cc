#include "tenure/transfer/ucx_receiver.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "tenure/base/log.h"
#include "tenure/base/status.h"
#include "tenure/transfer/rdma_device.h"
#include "tenure/transfer/socket_address.h"
#include "tenure/transfer/ucx_send.h"

namespace tenure::transfer {

static_assert(std::endian::native == std::endian::little, "heads of messages travel as they lie in memory");

absl::StatusOr<std::unique_ptr<UcxReceiver>> UcxReceiver::Create(UcxWorker& worker, const std::string& host) {
  std::unique_ptr<UcxReceiver> receiver(new UcxReceiver(worker));
  TENURE_RETURN_IF_ERROR(receiver->Listen(host));
  return receiver;
}

void UcxReceiver::Stop() {
  stopped_ = true;
  for (const auto& [endpoint, connection] : std::exchange(connections_, {})) Close(endpoint);
}

absl::Status UcxReceiver::Listen(const std::string& host) {
  TENURE_ASSIGN_OR_RETURN(const SocketAddress own, ListenAddress(host));
  const auto accept = [](ucp_conn_request_h request, void* self) { static_cast<UcxReceiver*>(self)->Accept(request); };
  TENURE_ASSIGN_OR_RETURN(address_.port, worker_.Listen(own, accept, this));
  address_.host = HostOf(own);
  address_.rdma = HasRdmaDevice();
  if (getentropy(&address_.receiver, sizeof(address_.receiver)) != 0)
    return Unavailable("the system gives no random bytes");

  const auto handler = [](void* self, const void* head, size_t head_size, void* bytes, size_t size,
                          const ucp_am_recv_param_t* param) {
    UcxPart part;
    const bool whole = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) == 0;  // Writers ask for that.
    if (head_size != sizeof(part) || !whole || (param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP) == 0) return UCS_OK;
    std::memcpy(&part, head, sizeof(part));
    static_cast<UcxReceiver*>(self)->OnPart(param->reply_ep, part, bytes, size);
    return UCS_OK;
  };
  return worker_.Handle(UcxMessage::kPart, handler, this);
}

void UcxReceiver::Accept(ucp_conn_request_h request) {
  const UcxLibrary& ucx = worker_.ucx();
  ucp_ep_params_t params = {};
  params.field_mask =
      UCP_EP_PARAM_FIELD_CONN_REQUEST | UCP_EP_PARAM_FIELD_ERR_HANDLER | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
  params.conn_request = request;
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.cb = [](void* self, ucp_ep_h endpoint, ucs_status_t) {
    auto& connections = static_cast<UcxReceiver*>(self)->connections_;
    const auto known = connections.find(endpoint);
    if (known != connections.end()) known->second.broken = true;
  };
  params.err_handler.arg = this;
  ucp_ep_h endpoint = nullptr;
  const ucs_status_t status = ucx.ep_create(worker_.handle(), &params, &endpoint);
  if (status != UCS_OK) return LogWarning("ucx: a writer cannot connect: {}", ucx.status_string(status));
  // Taken and then closed, since a refusal by the listener may end the process in UCX 1.13.
  const bool full = connections_.size() >= kConnectionsMax;
  if (full) LogWarning("ucx: a connection is closed, since {} are open", connections_.size());
  connections_.emplace(endpoint, Connection{{}, full});
}

void UcxReceiver::OnPart(ucp_ep_h from, const UcxPart& part, const void* bytes, uint64_t size) {
  const auto known = connections_.find(from);
  if (known == connections_.end() || known->second.broken) return;
  auto& posts = known->second.posts;
  const auto post = posts.try_emplace(part.post).first;
  if (posts.size() > kPostsMax) {
    known->second.broken = true;
    return;
  }
  Progress& progress = post->second;
  const Verdict verdict = Take(part, progress, bytes, size);
  progress.received += size;
  const bool whole = progress.received >= part.total;
  if (!progress.answered && (whole || verdict != Verdict::kWritten)) {
    progress.answered = true;
    Answer(from, {part.post, verdict});
  }
  if (whole) posts.erase(post);
}

Verdict UcxReceiver::Take(const UcxPart& part, const Progress& progress, const void* bytes, uint64_t size) const {
  if (stopped_ || part.receiver != address_.receiver) return Verdict::kOtherReceiver;
  if (part.total == 0 && size == 0) return Verdict::kWritten;
  if (progress.answered || size > part.total - std::min(part.total, progress.received) ||
      worker_.memory_map().Find(part.to, size) == MemoryMap::kNone) {
    return Verdict::kOutside;
  }
  std::memcpy(reinterpret_cast<void*>(part.to), bytes, size);
  return Verdict::kWritten;
}

void UcxReceiver::Answer(ucp_ep_h to, const UcxAnswer& answer) {
  // A writer that has gone needs none; UCX reports its connection.
  (void)SendHead(worker_.ucx(), to, UcxMessage::kAnswer, answer);
}

void UcxReceiver::Sweep() {
  for (auto it = connections_.begin(); it != connections_.end();) {
    const auto connection = it++;
    if (!connection->second.broken) continue;
    Close(connection->first);
    connections_.erase(connection);
  }
}

void UcxReceiver::Close(ucp_ep_h endpoint) {
  ucp_request_param_t params = {};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  params.flags = UCP_EP_CLOSE_FLAG_FORCE;
  const ucs_status_ptr_t request = worker_.ucx().ep_close_nbx(endpoint, &params);
  if (IsRequest(request)) worker_.ucx().request_free(request);
}

}  // namespace tenure::transfer
