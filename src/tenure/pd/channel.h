// What the cores of D ask of the side channel to P's workers (pd_protocol spec §3).
//
// A channel carries one message to one worker and then that worker's answers, until it is closed or fails. Values.
#pragma once

#include <cstdint>
#include <string>

#include "tenure/base/clock.h"
#include "tenure/base/units.h"

namespace tenure::pd {

// Chosen by the core that sends; no id comes twice from one core.
using ChannelId = Id<struct ChannelIdTag, uint64_t>;

struct ChannelMessage {
  ChannelId channel;    // New.
  std::string address;  // tcp://IP:PORT.
  std::string bytes;
  MonotonicTime deadline;  // The core closes the channel by then, or has its answer.
};

}  // namespace tenure::pd
