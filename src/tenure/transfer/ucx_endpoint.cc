#include "tenure/transfer/ucx_endpoint.h"

#include <algorithm>
#include <utility>

#include "tenure/base/status.h"
#include "tenure/transfer/socket_address.h"
#include "tenure/transfer/ucx_frame.h"
#include "tenure/transfer/ucx_send.h"
#include "tenure/transfer/ucx_transport.h"

namespace tenure::transfer {
namespace {

// Zeros behind what UCX parses without a length.
constexpr size_t kParsePadding = 256;

// Writes and parts given to UCX at once, before other posts, answers and deadlines have their turn.
constexpr size_t kGivenPerTurn = 64;

}  // namespace

// An active message on its way; UCX reads its head until it has gone.
struct UcxPost::Part {
  UcxPost& post;
  UcxPart head;
};

absl::StatusOr<std::unique_ptr<UcxEndpoint>> UcxEndpoint::Create(UcxWorker& worker, const UcxAddress& address,
                                                                 bool own_rdma, uint64_t id) {
  TENURE_ASSIGN_OR_RETURN(const SocketAddress target, NumericAddress(address.host, address.port));
  const bool writes = (own_rdma && address.rdma) || address.device_memory || worker.has_device_memory();
  std::unique_ptr<UcxEndpoint> endpoint(new UcxEndpoint(worker, id, address.receiver, writes));
  ucp_ep_params_t params = {};
  params.field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                      UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER;
  params.sockaddr = {target.get(), target.size};
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler.cb = [](void* argument, ucp_ep_h, ucs_status_t status) {
    auto& self = *static_cast<UcxEndpoint*>(argument);
    self.Fail(UcxStatus(self.worker_.ucx(), status, "the connection to the peer"));
  };
  params.err_handler.arg = endpoint.get();
  const ucs_status_t status = worker.ucx().ep_create(worker.handle(), &params, &endpoint->endpoint_);
  if (status != UCS_OK) endpoint->endpoint_ = nullptr;
  TENURE_RETURN_IF_ERROR(UcxStatus(worker.ucx(), status, "connecting to the peer"));
  endpoint->SendFirst();
  return endpoint;
}

void UcxEndpoint::SendFirst() {
  const UcxPart first = {receiver_, id_, 0, 0};
  const ucs_status_t status = SendHead(worker_.ucx(), endpoint_, UcxMessage::kPart, first, UCP_AM_SEND_FLAG_REPLY);
  if (status != UCS_OK) Fail(UcxStatus(worker_.ucx(), status, "connecting to the peer"));
}

void UcxEndpoint::OnAnswer(Verdict verdict) {
  connected_ = verdict == Verdict::kWritten;
  if (!connected_) Fail(VerdictStatus(Verdict::kOtherReceiver));
}

UcxEndpoint::~UcxEndpoint() { Release(); }

void UcxEndpoint::Release() {
  if (IsRequest(close_request_)) worker_.ucx().request_free(close_request_);
  close_request_ = nullptr;
  for (const auto& [packed, key] : keys_) worker_.ucx().rkey_destroy(key);
  keys_.clear();
}

absl::StatusOr<std::vector<PlacedWrite>> UcxEndpoint::Place(const std::vector<pd::MemoryKey>& memory,
                                                            const std::vector<pd::WritePiece>& pieces) {
  return placer_.Place(worker_.memory_map(), memory, pieces);
}

absl::StatusOr<ucp_rkey_h> UcxEndpoint::Key(const std::string& packed) {
  const auto known = keys_.find(packed);
  if (known != keys_.end()) return known->second;
  if (keys_.size() >= Transport::kRangesMax) {
    return ResourceExhausted("the peer has sent more than {} memory keys; register each storage once",
                             Transport::kRangesMax);
  }
  TENURE_ASSIGN_OR_RETURN(std::string bytes, UnframeUcxBytes("memory key", packed));
  bytes.append(kParsePadding, '\0');
  ucp_rkey_h key = nullptr;
  TENURE_RETURN_IF_ERROR(UcxStatus(worker_.ucx(), worker_.ucx().ep_rkey_unpack(endpoint_, bytes.data(), &key),
                                   "reading the peer's memory key"));
  keys_[packed] = key;
  return key;
}

void UcxEndpoint::Fail(absl::Status status) {
  if (error_.ok()) error_ = std::move(status);
}

void UcxEndpoint::StartClose() {
  if (std::exchange(closing_, true)) return;
  ucp_request_param_t params = {};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
  params.flags = UCP_EP_CLOSE_FLAG_FORCE;
  close_request_ = worker_.ucx().ep_close_nbx(endpoint_, &params);
}

bool UcxEndpoint::closed() {
  return closing_ &&
         (!IsRequest(close_request_) || worker_.ucx().request_check_status(close_request_) != UCS_INPROGRESS);
}

UcxPost::UcxPost(UcxEndpoint& endpoint, uint64_t id, std::vector<PlacedWrite> writes, std::vector<ucp_rkey_h> keys,
                 MonotonicTime deadline, WriteDone done)
    : endpoint_(endpoint),
      id_(id),
      writes_(std::move(writes)),
      keys_(std::move(keys)),
      deadline_(deadline),
      done_(std::move(done)) {
  for (const PlacedWrite& write : writes_) total_ += write.size;
  arrived_ = total_ == 0;
  ++endpoint_.posts;
  ++endpoint_.unanswered;
}

UcxPost::~UcxPost() { --endpoint_.posts; }

bool UcxPost::Pump() {
  if (!endpoint_.connected()) return false;
  for (size_t turn = 0; turn < kGivenPerTurn && next_ < writes_.size() && error_.ok(); ++turn) {
    if (endpoint_.in_flight >= UcxTransport::kInFlightMax) return false;
    if (endpoint_.writes()) {
      Put(writes_[next_++]);
    } else if (SendPart(writes_[next_])) {
      ++next_;
    }
  }
  if (!error_.ok()) return false;
  if (next_ < writes_.size()) return endpoint_.in_flight < UcxTransport::kInFlightMax;
  if (endpoint_.writes() && !flushing_ && !arrived_) Flush();
  return false;
}

void UcxPost::Put(const PlacedWrite& write) {
  const UcxLibrary& ucx = endpoint_.worker().ucx();
  ucp_request_param_t params = {};
  params.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMH | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
  params.cb.send = &UcxPost::OnPut;
  params.user_data = this;
  params.memh = endpoint_.worker().memory(write.from_range);
  params.memory_type = endpoint_.worker().memory_type(write.from_range);
  const ucs_status_ptr_t result = ucx.put_nbx(endpoint_.handle(), reinterpret_cast<const void*>(write.from), write.size,
                                              write.to, keys_[write.to_range], &params);
  if (IsRequest(result)) {
    Began();
  } else if (result != nullptr) {
    Failed(StatusOf(result), "writing to the peer");
  }
}

bool UcxPost::SendPart(const PlacedWrite& write) {
  const UcxLibrary& ucx = endpoint_.worker().ucx();
  const uint64_t size = std::min(kUcxPartBytes, write.size - offset_);
  auto part = std::make_unique<Part>(Part{*this, {endpoint_.receiver(), id_, write.to + offset_, total_}});
  ucp_request_param_t params = {};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS |
                        UCP_OP_ATTR_FIELD_MEMORY_TYPE;
  params.flags = UCP_AM_SEND_FLAG_EAGER | UCP_AM_SEND_FLAG_REPLY;
  params.cb.send = &UcxPost::OnPart;
  params.user_data = part.get();
  params.memory_type = UCS_MEMORY_TYPE_HOST;
  const ucs_status_ptr_t result =
      ucx.am_send_nbx(endpoint_.handle(), static_cast<unsigned>(UcxMessage::kPart), &part->head, sizeof(part->head),
                      reinterpret_cast<const void*>(write.from + offset_), size, &params);
  offset_ += size;
  if (IsRequest(result)) {
    Began();
    (void)part.release();
  } else if (result != nullptr) {
    Failed(StatusOf(result), "writing to the peer");
  }
  if (offset_ < write.size) return false;
  offset_ = 0;
  return true;
}

void UcxPost::Began() {
  ++in_flight_;
  ++endpoint_.in_flight;
}

void UcxPost::Ended(void* request, ucs_status_t status) {
  --in_flight_;
  --endpoint_.in_flight;
  endpoint_.worker().ucx().request_free(request);
  if (status != UCS_OK) Failed(status, "writing to the peer");
}

void UcxPost::OnPut(void* request, ucs_status_t status, void* post) {
  static_cast<UcxPost*>(post)->Ended(request, status);
}

void UcxPost::OnPart(void* request, ucs_status_t status, void* part) {
  const std::unique_ptr<Part> sent(static_cast<Part*>(part));
  sent->post.Ended(request, status);
}

void UcxPost::OnAnswer(Verdict verdict) {
  arrived_ = verdict == Verdict::kWritten;
  if (!arrived_ && error_.ok()) error_ = VerdictStatus(Verdict::kOutside);
}

void UcxPost::Flush() {
  ucp_request_param_t params = {};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  params.cb.send = &UcxPost::OnFlush;
  params.user_data = this;
  const ucs_status_ptr_t result = endpoint_.worker().ucx().ep_flush_nbx(endpoint_.handle(), &params);
  if (IsRequest(result)) {
    flushing_ = true;
  } else if (result != nullptr) {
    Failed(StatusOf(result), "waiting for the peer's memory");
  } else {
    arrived_ = true;
  }
}

void UcxPost::OnFlush(void* request, ucs_status_t status, void* post) {
  auto& self = *static_cast<UcxPost*>(post);
  self.flushing_ = false;
  self.endpoint_.worker().ucx().request_free(request);
  if (status == UCS_OK) {
    self.arrived_ = true;
  } else {
    self.Failed(status, "waiting for the peer's memory");
  }
}

void UcxPost::Failed(ucs_status_t status, const char* what) {
  if (error_.ok()) error_ = UcxStatus(endpoint_.worker().ucx(), status, what);
}

void UcxPost::Answer(absl::Status status) {
  --endpoint_.unanswered;
  const bool settled = status.ok() || !issued();
  const WriteDone done = std::exchange(done_, nullptr);
  done({std::move(status), settled});
}

}  // namespace tenure::transfer
