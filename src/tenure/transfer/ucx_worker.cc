#include "tenure/transfer/ucx_worker.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "tenure/base/status.h"
#include "tenure/transfer/ucx_frame.h"

namespace tenure::transfer {

absl::StatusOr<std::unique_ptr<UcxWorker>> UcxWorker::Create(const std::string& transports) {
  TENURE_ASSIGN_OR_RETURN(const UcxLibrary* ucx, LoadUcx());
  std::unique_ptr<UcxWorker> worker(new UcxWorker(*ucx));
  TENURE_RETURN_IF_ERROR(worker->Start(transports));
  return worker;
}

UcxWorker::~UcxWorker() {
  ReleaseMemory();
  if (listener_ != nullptr) return;
  if (worker_ != nullptr) ucx_.worker_destroy(worker_);
  if (context_ != nullptr) ucx_.cleanup(context_);
}

void UcxWorker::ReleaseMemory() {
  for (ucp_mem_h memory : memory_) ucx_.mem_unmap(context_, memory);
  memory_.clear();
  types_.clear();
  keys_.clear();
  ranges_.clear();
  map_ = MemoryMap();
}

namespace {

// Which connections UCX may use, and TCP's segments, which both sides have alike (ucx_message.h): a message that is
// larger than the receiver's would be written beyond its end. UCX 1.13 takes the names of a transport's options without
// the transport's; a UCX that knows them by other names says so in the log and sends in fragments.
ucs_status_t Configure(const UcxLibrary& ucx, ucp_config_t* config, const std::string& transports) {
  const std::array<std::pair<const char*, std::string>, 3> options = {
      {{"TLS", transports}, {"RX_SEG_SIZE", fmt::format("{}", kUcxSegmentBytes)}, {"TX_SEG_SIZE", "8k"}}};
  for (const auto& [name, value] : options) {
    const ucs_status_t status = ucx.config_modify(config, name, value.c_str());
    if (status != UCS_OK) return status;
  }
  return UCS_OK;
}

}  // namespace

absl::Status UcxWorker::Start(const std::string& transports) {
  ucp_config_t* config = nullptr;
  TENURE_RETURN_IF_ERROR(UcxStatus(ucx_, ucx_.config_read(nullptr, nullptr, &config), "reading UCX's configuration"));
  ucs_status_t status = Configure(ucx_, config, transports);
  if (status == UCS_OK) {
    ucp_params_t params = {};
    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features = UCP_FEATURE_RMA | UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
    status = ucx_.init_version(UCP_API_MAJOR, UCP_API_MINOR, &params, config, &context_);
  }
  ucx_.config_release(config);
  if (status != UCS_OK) context_ = nullptr;
  TENURE_RETURN_IF_ERROR(UcxStatus(ucx_, status, "starting UCX"));

  ucp_worker_params_t worker_params = {};
  worker_params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  worker_params.thread_mode = UCS_THREAD_MODE_SINGLE;
  status = ucx_.worker_create(context_, &worker_params, &worker_);
  if (status != UCS_OK) worker_ = nullptr;
  TENURE_RETURN_IF_ERROR(UcxStatus(ucx_, status, "making UCX's worker"));
  return UcxStatus(ucx_, ucx_.worker_get_efd(worker_, &event_descriptor_), "asking for UCX's events");
}

absl::StatusOr<uint16_t> UcxWorker::Listen(const SocketAddress& own, ucp_listener_conn_callback_t handler,
                                           void* argument) {
  ucp_listener_params_t params = {};
  params.field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER;
  params.sockaddr = {own.get(), own.size};
  params.conn_handler = {handler, argument};
  const ucs_status_t status = ucx_.listener_create(worker_, &params, &listener_);
  if (status != UCS_OK) listener_ = nullptr;
  TENURE_RETURN_IF_ERROR(UcxStatus(ucx_, status, fmt::format("listening at {}", HostOf(own)).c_str()));
  ucp_listener_attr_t attributes = {};
  attributes.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR;
  TENURE_RETURN_IF_ERROR(
      UcxStatus(ucx_, ucx_.listener_query(listener_, &attributes), "asking for the listener's port"));
  return PortOf({attributes.sockaddr, own.size});
}

bool UcxWorker::has_device_memory() const {
  return std::any_of(types_.begin(), types_.end(), [](ucs_memory_type_t type) { return type != UCS_MEMORY_TYPE_HOST; });
}

absl::Status UcxWorker::Handle(UcxMessage message, ucp_am_recv_callback_t handler, void* argument) {
  ucp_am_handler_param_t params = {};
  params.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  params.id = static_cast<unsigned>(message);
  params.cb = handler;
  params.arg = argument;
  return UcxStatus(ucx_, ucx_.worker_set_am_recv_handler(worker_, &params), "taking messages");
}

absl::Status UcxWorker::TakeAnswers(std::function<void(const UcxAnswer&)> take) {
  take_answer_ = std::move(take);
  const auto handler = [](void* self, const void* head, size_t head_size, void*, size_t, const ucp_am_recv_param_t*) {
    UcxAnswer answer;
    if (head_size != sizeof(answer)) return UCS_OK;
    std::memcpy(&answer, head, sizeof(answer));
    static_cast<UcxWorker*>(self)->take_answer_(answer);
    return UCS_OK;
  };
  return Handle(UcxMessage::kAnswer, handler, this);
}

absl::Status UcxWorker::Register(const std::vector<MemoryRange>& ranges) {
  std::vector<MemoryRange> all = ranges_;
  all.insert(all.end(), ranges.begin(), ranges.end());
  TENURE_ASSIGN_OR_RETURN(MemoryMap map, MemoryMap::Create("registering memory", all));
  const size_t before = memory_.size();
  absl::Status status;
  for (size_t i = 0; i < ranges.size() && status.ok(); ++i) {
    ucp_mem_map_params_t params = {};
    params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
    params.address = reinterpret_cast<void*>(ranges[i].address);
    params.length = ranges[i].size;
    ucp_mem_h memory = nullptr;
    status = UcxStatus(ucx_, ucx_.mem_map(context_, &params, &memory), "registering memory with UCX");
    if (!status.ok()) break;
    memory_.push_back(memory);
    ucp_mem_attr_t attributes = {};
    attributes.field_mask = UCP_MEM_ATTR_FIELD_MEM_TYPE;
    status = UcxStatus(ucx_, ucx_.mem_query(memory, &attributes), "asking UCX what memory it is");
    if (!status.ok()) break;
    types_.push_back(attributes.mem_type);
    const auto key = PackKey(memory);
    status = key.status();
    if (key.ok()) keys_.push_back({ranges[i].address, ranges[i].size, *key});
  }
  if (!status.ok()) {
    for (size_t i = before; i < memory_.size(); ++i) ucx_.mem_unmap(context_, memory_[i]);
    memory_.resize(before);
    types_.resize(before);
    keys_.resize(before);
    return status;
  }
  ranges_ = std::move(all);
  map_ = std::move(map);
  return absl::OkStatus();
}

absl::StatusOr<std::string> UcxWorker::PackKey(ucp_mem_h memory) {
  void* key = nullptr;
  size_t size = 0;
  TENURE_RETURN_IF_ERROR(UcxStatus(ucx_, ucx_.rkey_pack(context_, memory, &key, &size), "packing a memory key"));
  std::string framed = FrameUcxBytes({static_cast<const char*>(key), size});
  ucx_.rkey_buffer_release(key);
  return framed;
}

}  // namespace tenure::transfer
