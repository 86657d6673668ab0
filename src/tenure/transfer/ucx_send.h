// Active messages that are a head alone.
#pragma once

#include <memory>

#include "tenure/transfer/ucx_library.h"
#include "tenure/transfer/ucx_message.h"

namespace tenure::transfer {

// Sends a copy of `head`, eagerly, with these UCP_AM_SEND flags besides. UCS_OK: it has gone or is under way; that it
// is lost then shows in the connection. Of the worker's thread.
template <typename Head>
ucs_status_t SendHead(const UcxLibrary& ucx, ucp_ep_h endpoint, UcxMessage message, const Head& head,
                      uint32_t flags = 0) {
  struct Sent {  // UCX reads the head until the message has gone.
    const UcxLibrary& ucx;
    Head head;
  };
  auto sent = std::make_unique<Sent>(Sent{ucx, head});
  ucp_request_param_t params = {};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
  params.flags = UCP_AM_SEND_FLAG_EAGER | flags;
  params.user_data = sent.get();
  params.cb.send = [](void* request, ucs_status_t, void* data) {
    const std::unique_ptr<Sent> done(static_cast<Sent*>(data));
    done->ucx.request_free(request);
  };
  const ucs_status_ptr_t result =
      ucx.am_send_nbx(endpoint, static_cast<unsigned>(message), &sent->head, sizeof(Head), nullptr, 0, &params);
  if (!IsRequest(result)) return StatusOf(result);
  (void)sent.release();
  return UCS_OK;
}

}  // namespace tenure::transfer
