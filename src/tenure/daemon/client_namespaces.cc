#include "tenure/daemon/client_namespaces.h"

#include "tenure/base/status.h"
#include "tenure/daemon/wire_messages.h"

namespace tenure::daemon {

absl::StatusOr<store::NamespaceId> ClientNamespaces::Open(std::string_view prefix) {
  MutexLock lock(mutex_);
  TENURE_ASSIGN_OR_RETURN(const store::NamespaceId id, table_.Open(prefix));
  if (id.value() == prefixes_.size()) prefixes_.emplace_back(prefix);
  return id;
}

std::string ClientNamespaces::PrefixOf(store::NamespaceId id) const {
  MutexLock lock(mutex_);
  return prefixes_[id.value()];
}

absl::Status ClientNamespaces::ToDaemons(LiveSession& session, store::ObjectKey& key, MonotonicTime deadline) {
  const store::NamespaceId id = key.name_space;
  if (session.namespaces.size() <= id.value()) session.namespaces.resize(id.value() + 1, LiveSession::kNoNamespace);
  uint32_t& known = session.namespaces[id.value()];
  if (known == LiveSession::kNoNamespace) {
    OpenNamespaceReply reply;
    TENURE_RETURN_IF_ERROR(session.client->Call(OpenNamespaceRequest{.prefix = PrefixOf(id)}, deadline, reply));
    known = reply.name_space;
  }
  key.name_space = store::NamespaceId(known);
  return absl::OkStatus();
}

}  // namespace tenure::daemon
