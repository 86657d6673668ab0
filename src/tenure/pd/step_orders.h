// What the scheduler of a prefill or decode engine tells all of its workers in one step.
//
// A value; it crosses processes as bytes inside the engine's connector metadata. Every worker gets the same orders and
// derives its own part of the blocks. Groups are transfer groups, block ids the engine's. Both ends are one release, so
// the format has no compatibility to keep; the bytes are checked all the same. Source: pd_protocol spec §4.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace tenure::pd {

// A request of P and the id under which D will ask for it.
struct TransferOrder {
  std::string request_id;
  std::string transfer_id;
  friend bool operator==(const TransferOrder&, const TransferOrder&) = default;
};

// The prefill has ended and its KV is in `blocks`, one list a group; none at all is a prefill without KV.
struct FinishOrder {
  std::string request_id;
  std::string transfer_id;
  std::vector<std::vector<int64_t>> blocks;
  friend bool operator==(const FinishOrder&, const FinishOrder&) = default;
};

// D wants the KV of a transfer in its `blocks`; no group at all only releases P's.
struct PullOrder {
  std::string request_id;
  std::string transfer_id;
  std::string engine_id;  // P's.
  std::string bootstrap_address;
  std::vector<std::vector<int64_t>> blocks;
  absl::Duration remaining;  // Until the request's deadline, when the orders were taken; 0: it has passed.
  friend bool operator==(const PullOrder&, const PullOrder&) = default;
};

// Carried out in this order, so that a transfer id may end and begin again in one step.
struct StepOrders {
  std::vector<TransferOrder> aborted;
  std::vector<TransferOrder> announced;
  std::vector<FinishOrder> finished;
  std::vector<PullOrder> pulls;
  bool empty() const { return aborted.empty() && announced.empty() && finished.empty() && pulls.empty(); }
  friend bool operator==(const StepOrders&, const StepOrders&) = default;
};

// InvalidArgument for texts and lists beyond MsgpackReader's maxima, which the decoder would refuse.
absl::StatusOr<std::string> EncodeStepOrders(const StepOrders& orders);
// InvalidArgument for anything else than what EncodeStepOrders writes. No bytes are no orders.
absl::StatusOr<StepOrders> DecodeStepOrders(std::string_view bytes);

}  // namespace tenure::pd
