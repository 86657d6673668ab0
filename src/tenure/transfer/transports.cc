#include "tenure/transfer/transports.h"

#include "tenure/base/status.h"
#include "tenure/transfer/auto_transport.h"
#include "tenure/transfer/local_transport.h"
#include "tenure/transfer/tcp_transport.h"
#include "tenure/transfer/ucx_transport.h"

namespace tenure::transfer {

absl::StatusOr<std::unique_ptr<Transport>> CreateTransport(std::string_view kind, const std::string& host,
                                                           const Clock& clock) {
  if (kind == LocalTransport::kKind) return LocalTransport::Create({}, clock);
  if (kind == UcxTransport::kKind) return UcxTransport::Create({.host = host}, clock);
  if (kind == TcpTransport::kKind) return TcpTransport::Create({.host = host}, clock);
  if (kind == kAutoKind) return AutoTransport::Create(host, clock);
  return InvalidArgument("transport is \"{}\"; use \"auto\", \"local\" (one host), \"tcp\" or \"ucx\"", kind);
}

}  // namespace tenure::transfer
