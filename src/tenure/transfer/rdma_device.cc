#include "tenure/transfer/rdma_device.h"

#include <filesystem>
#include <system_error>

namespace tenure::transfer {

bool HasRdmaDevice() {
  std::error_code none;
  return std::filesystem::directory_iterator("/sys/class/infiniband", none) != std::filesystem::directory_iterator();
}

}  // namespace tenure::transfer
