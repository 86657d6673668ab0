// Whether this host has a network card that writes to memory by itself.
#pragma once

namespace tenure::transfer {

bool HasRdmaDevice();

}  // namespace tenure::transfer
