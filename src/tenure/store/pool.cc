#include "tenure/store/pool.h"

namespace tenure::store {

std::string_view ToString(KeyAnswer answer) {
  switch (answer) {
    case KeyAnswer::kPresent:
      return "present";
    case KeyAnswer::kAbsent:
      return "absent";
    case KeyAnswer::kSizeDiffers:
      return "size_differs";
    case KeyAnswer::kUnavailable:
      return "unavailable";
  }
  return "unknown";
}

std::string_view ToString(PutAnswer answer) {
  switch (answer) {
    case PutAnswer::kStored:
      return "stored";
    case PutAnswer::kExists:
      return "exists";
    case PutAnswer::kSizeDiffers:
      return "size_differs";
    case PutAnswer::kBusy:
      return "busy";
    case PutAnswer::kWaiting:
      return "waiting";
    case PutAnswer::kRefusedFull:
      return "refused_full";
    case PutAnswer::kRefusedIndex:
      return "refused_index";
    case PutAnswer::kRefusedWaiting:
      return "refused_waiting";
    case PutAnswer::kRefusedSize:
      return "refused_size";
    case PutAnswer::kNotStored:
      return "not_stored";
  }
  return "unknown";
}

}  // namespace tenure::store
