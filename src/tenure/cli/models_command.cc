#include <fmt/format.h>

#include <ostream>

#include "tenure/cli/commands.h"
#include "tenure/sim/model_profile.h"
#include "tenure/sim/replay_report.h"

namespace tenure::cli {

int RunModels(const Io& io) {
  io.out << fmt::format("{:<16}  {:<24}  {:>13}  {:>14}  {:>13}\n", "model", "layers", "bytes a token",
                        "bytes a window", "bytes a state");
  for (const sim::BuiltinModel& model : sim::BuiltinModels()) {
    const auto bytes = [](Bytes value) { return value == Bytes(0) ? std::string("-") : sim::Grouped(value.value()); };
    io.out << fmt::format("{:<16}  {:<24}  {:>13}  {:>14}  {:>13}\n", model.name, model.layers,
                          bytes(model.full_token_bytes), bytes(model.window_bytes()), bytes(model.state_bytes));
  }
  return kExitDone;
}

}  // namespace tenure::cli
