// Any bytes are requests that keep the format's rules, or one line of error; reading never ends the process.
#include <cstddef>
#include <cstdint>
#include <string>

#include "tenure/base/check.h"
#include "tenure/base/status.h"
#include "tenure/sim/trace.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using tenure::CeilDiv;
  using tenure::Tokens;
  const Tokens block(512);
  std::string text(reinterpret_cast<const char*>(data), size);
  tenure::sim::TraceReader reader("fuzz", tenure::sim::MakeMemorySource(std::move(text)), block);
  tenure::sim::TraceRequest request;
  int64_t last_ms = 0;
  while (true) {
    const auto more = reader.Next(request);
    if (!more.ok()) {
      TENURE_CHECK(tenure::Message(more.status()).find('\n') == std::string_view::npos);
      return 0;
    }
    if (!*more) return 0;
    TENURE_CHECK(request.timestamp_ms >= last_ms && request.input_length >= Tokens(1) &&
                 request.output_length >= Tokens(0));
    TENURE_CHECK(static_cast<int64_t>(request.hash_ids.size()) == CeilDiv(request.input_length, block));
    for (const int64_t id : request.hash_ids) TENURE_CHECK(id >= 0);
    last_ms = request.timestamp_ms;
  }
}
