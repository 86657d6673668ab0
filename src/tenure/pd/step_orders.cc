#include "tenure/pd/step_orders.h"

#include <algorithm>
#include <array>

#include "tenure/base/status.h"
#include "tenure/pd/msgpack_reader.h"
#include "tenure/pd/wire_fields.h"

namespace tenure::pd {
namespace {

constexpr std::array<std::string_view, 4> kFields = {"aborted", "announced", "finished", "pulls"};

using Blocks = std::vector<std::vector<int64_t>>;

absl::Status CheckOrder(const std::string& request_id, const std::string& transfer_id, const Blocks& blocks) {
  TENURE_RETURN_IF_ERROR(CheckText("step orders: request id", request_id));
  TENURE_RETURN_IF_ERROR(CheckText("step orders: transfer id", transfer_id));
  TENURE_RETURN_IF_ERROR(CheckItems("step orders: blocks", blocks.size()));
  for (const std::vector<int64_t>& group : blocks) {
    TENURE_RETURN_IF_ERROR(CheckItems("step orders: blocks of a group", group.size()));
  }
  return absl::OkStatus();
}

absl::Status CheckOrders(const StepOrders& orders) {
  for (const size_t count :
       {orders.aborted.size(), orders.announced.size(), orders.finished.size(), orders.pulls.size()}) {
    TENURE_RETURN_IF_ERROR(CheckItems("step orders", count));
  }
  for (const TransferOrder& order : orders.aborted) {
    TENURE_RETURN_IF_ERROR(CheckOrder(order.request_id, order.transfer_id, {}));
  }
  for (const TransferOrder& order : orders.announced) {
    TENURE_RETURN_IF_ERROR(CheckOrder(order.request_id, order.transfer_id, {}));
  }
  for (const FinishOrder& order : orders.finished) {
    TENURE_RETURN_IF_ERROR(CheckOrder(order.request_id, order.transfer_id, order.blocks));
  }
  for (const PullOrder& order : orders.pulls) {
    TENURE_RETURN_IF_ERROR(CheckOrder(order.request_id, order.transfer_id, order.blocks));
    TENURE_RETURN_IF_ERROR(CheckText("step orders: engine id", order.engine_id));
    TENURE_RETURN_IF_ERROR(CheckText("step orders: bootstrap address", order.bootstrap_address));
  }
  return absl::OkStatus();
}

void Write(MsgpackWriter& writer, const TransferOrder& order) {
  writer.Array(2);
  writer.Text(order.request_id);
  writer.Text(order.transfer_id);
}
void Write(MsgpackWriter& writer, const FinishOrder& order) {
  writer.Array(3);
  writer.Text(order.request_id);
  writer.Text(order.transfer_id);
  writer.Value(order.blocks);
}
void Write(MsgpackWriter& writer, const PullOrder& order) {
  writer.Array(6);
  writer.Text(order.request_id);
  writer.Text(order.transfer_id);
  writer.Text(order.engine_id);
  writer.Text(order.bootstrap_address);
  writer.Value(order.blocks);
  writer.Integer(absl::ToInt64Nanoseconds(order.remaining));
}

template <typename Order>
void WriteUnlessEmpty(MapWriter& map, size_t field, const std::vector<Order>& orders) {
  if (orders.empty()) return;
  MsgpackWriter& writer = map.Field(kFields[field]);
  writer.Array(orders.size());
  for (const Order& order : orders) Write(writer, order);
}

void Expect(MsgpackReader& reader, size_t items) {
  if (reader.Array(items) != items) reader.Fail("has an order with another number of items");
}

void Read(MsgpackReader& reader, TransferOrder& order) {
  Expect(reader, 2);
  reader.Read(order.request_id);
  reader.Read(order.transfer_id);
}
void Read(MsgpackReader& reader, FinishOrder& order) {
  Expect(reader, 3);
  reader.Read(order.request_id);
  reader.Read(order.transfer_id);
  reader.Read(order.blocks);
}
void Read(MsgpackReader& reader, PullOrder& order) {
  Expect(reader, 6);
  reader.Read(order.request_id);
  reader.Read(order.transfer_id);
  reader.Read(order.engine_id);
  reader.Read(order.bootstrap_address);
  reader.Read(order.blocks);
  int64_t remaining = 0;
  reader.Read(remaining);
  if (remaining < 0) reader.Fail("has a pull with a negative time");
  order.remaining = absl::Nanoseconds(remaining);
}

// An order takes at least `bytes_min` bytes, so a count cannot ask for more memory than its message's share.
template <typename Order>
void ReadOrders(MsgpackReader& reader, size_t bytes_min, std::vector<Order>& orders) {
  const size_t count = reader.Array(MsgpackReader::kItemsMax);
  orders.reserve(std::min(count, reader.left() / bytes_min));
  for (size_t i = 0; i < count && !reader.failed(); ++i) Read(reader, orders.emplace_back());
}

}  // namespace

absl::StatusOr<std::string> EncodeStepOrders(const StepOrders& orders) {
  std::string bytes;
  if (orders.empty()) return bytes;
  TENURE_RETURN_IF_ERROR(CheckOrders(orders));
  MapWriter map(bytes);
  WriteUnlessEmpty(map, 0, orders.aborted);
  WriteUnlessEmpty(map, 1, orders.announced);
  WriteUnlessEmpty(map, 2, orders.finished);
  WriteUnlessEmpty(map, 3, orders.pulls);
  map.Finish();
  return bytes;
}

absl::StatusOr<StepOrders> DecodeStepOrders(std::string_view bytes) {
  StepOrders orders;
  if (bytes.empty()) return orders;
  MsgpackReader reader(bytes);
  reader.Fields(kFields, 0, [&](size_t field) {
    switch (field) {
      case 0:
        return ReadOrders(reader, 3, orders.aborted);
      case 1:
        return ReadOrders(reader, 3, orders.announced);
      case 2:
        return ReadOrders(reader, 4, orders.finished);
      default:
        return ReadOrders(reader, 7, orders.pulls);
    }
  });
  TENURE_RETURN_IF_ERROR(reader.Finish("step orders"));
  return orders;
}

}  // namespace tenure::pd
