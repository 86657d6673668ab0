// Any bytes as lines of `tenure explain`: each line gets one answer that is JSON, and nothing ends the process.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tenure/base/check.h"
#include "tenure/cli/explain.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string text(size, '\0');
  for (size_t i = 0; i < size; ++i) text[i] = static_cast<char>(data[i]);
  std::istringstream in(text);
  std::ostringstream out;
  TENURE_CHECK(tenure::cli::RunExplain(in, out) == 0);
  std::istringstream answers(out.str());
  size_t lines = 0;
  for (std::string line; std::getline(answers, line); ++lines) TENURE_CHECK(nlohmann::json::accept(line));
  size_t expected = text.empty() || text.back() == '\n' ? 0 : 1;
  for (const char c : text) expected += c == '\n' ? 1 : 0;
  TENURE_CHECK(lines == expected);
  return 0;
}
