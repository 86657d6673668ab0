#include "tenure/kv/group_spec.h"

#include "tenure/base/status.h"

namespace tenure::kv {

std::string_view ToString(GroupKind kind) {
  switch (kind) {
    case GroupKind::kFull:
      return "full";
    case GroupKind::kWindow:
      return "window";
    case GroupKind::kState:
      return "state";
    case GroupKind::kChunked:
      return "chunked";
  }
  return "unknown";
}

absl::StatusOr<GroupKind> ParseGroupKind(std::string_view what, std::string_view text) {
  for (const GroupKind kind : {GroupKind::kFull, GroupKind::kWindow, GroupKind::kState, GroupKind::kChunked}) {
    if (text == ToString(kind)) return kind;
  }
  return InvalidArgument("{} is \"{}\"; use full, window, state or chunked", what, text.substr(0, 64));
}

}  // namespace tenure::kv
