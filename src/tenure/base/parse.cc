#include "tenure/base/parse.h"

#include <array>
#include <limits>
#include <optional>
#include <string>

#include "tenure/base/status.h"

namespace tenure {
namespace {

__extension__ using Wide = __int128;

constexpr int64_t kNanosecondsMax = int64_t{10} * 365 * 24 * 3600 * 1'000'000'000;
constexpr size_t kQuotedMax = 60;

struct Unit {
  std::string_view name;
  int64_t scale;
};
constexpr int64_t kKibi = 1024;
constexpr std::array<Unit, 9> kSizeUnits{{{"B", 1},
                                          {"kB", 1000},
                                          {"MB", 1000'000},
                                          {"GB", 1000'000'000},
                                          {"TB", 1000'000'000'000},
                                          {"KiB", kKibi},
                                          {"MiB", kKibi* kKibi},
                                          {"GiB", kKibi* kKibi* kKibi},
                                          {"TiB", kKibi* kKibi* kKibi* kKibi}}};
constexpr std::array<Unit, 7> kDurationUnits{{{"ns", 1},
                                              {"us", 1000},
                                              {"ms", 1000'000},
                                              {"s", 1000'000'000},
                                              {"m", int64_t{60} * 1000'000'000},
                                              {"min", int64_t{60} * 1000'000'000},
                                              {"h", int64_t{3600} * 1000'000'000}}};

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// For a message: control characters would break its one line, and length is bounded.
std::string Quoted(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text.substr(0, kQuotedMax)) quoted += (c >= ' ' && c <= '~') ? c : '?';
  quoted += text.size() > kQuotedMax ? "...\"" : "\"";
  return quoted;
}

// A decimal number, exact: digits / 10^fraction_digits.
struct Decimal {
  int64_t digits = 0;
  int fraction_digits = 0;
  bool too_large = false;
  std::string_view rest;  // What follows the number.
};

std::optional<Decimal> ReadDecimal(std::string_view text) {
  Decimal number;
  size_t i = 0;
  bool point = false;
  for (; i < text.size() && (IsDigit(text[i]) || text[i] == '.'); ++i) {
    if (text[i] == '.') {
      if (point || i == 0 || i + 1 == text.size() || !IsDigit(text[i + 1])) return std::nullopt;
      point = true;
      continue;
    }
    number.too_large |= __builtin_mul_overflow(number.digits, int64_t{10}, &number.digits) ||
                        __builtin_add_overflow(number.digits, int64_t{text[i] - '0'}, &number.digits);
    if (point) ++number.fraction_digits;
  }
  if (i == 0) return std::nullopt;
  number.rest = text.substr(i);
  return number;
}

// digits * scale / 10^fraction_digits, when it is whole and at most `maximum`.
enum class Scaled { kWhole, kFraction, kTooLarge };
Scaled Scale(const Decimal& number, int64_t scale, int64_t maximum, int64_t* result) {
  if (number.too_large) return Scaled::kTooLarge;
  Wide value = Wide{number.digits} * scale;
  for (int i = 0; i < number.fraction_digits; ++i) {
    if (value % 10 != 0) return Scaled::kFraction;
    value /= 10;
  }
  if (value > maximum) return Scaled::kTooLarge;
  *result = static_cast<int64_t>(value);
  return Scaled::kWhole;
}

template <size_t n>
const Unit* FindUnit(const std::array<Unit, n>& units, std::string_view name) {
  for (const Unit& unit : units) {
    if (unit.name == name) return &unit;
  }
  return nullptr;
}

}  // namespace

absl::StatusOr<int64_t> ParseCount(std::string_view what, std::string_view text, int64_t minimum, int64_t maximum) {
  const auto number = ReadDecimal(text);
  if (!number || !number->rest.empty() || number->fraction_digits > 0 || number->too_large ||
      number->digits < minimum || number->digits > maximum) {
    return InvalidArgument("{} {}: give a whole number from {} to {}", what, Quoted(text), minimum, maximum);
  }
  return number->digits;
}

absl::StatusOr<Bytes> ParseSize(std::string_view what, std::string_view text) {
  constexpr std::string_view kForms = "give a number and B, kB, MB, GB, TB, KiB, MiB, GiB or TiB, such as 512GiB";
  auto number = ReadDecimal(text);
  if (!number) return InvalidArgument("{} {}: {}", what, Quoted(text), kForms);
  if (number->rest.size() > 1 && number->rest[0] == ' ') number->rest.remove_prefix(1);
  const Unit* unit = FindUnit(kSizeUnits, number->rest.empty() ? "B" : number->rest);
  if (unit == nullptr) return InvalidArgument("{} {}: {}", what, Quoted(text), kForms);
  int64_t bytes = 0;
  switch (Scale(*number, unit->scale, std::numeric_limits<int64_t>::max(), &bytes)) {
    case Scaled::kWhole:
      return Bytes(bytes);
    case Scaled::kFraction:
      return InvalidArgument("{} {}: not a whole number of bytes; {}", what, Quoted(text), kForms);
    case Scaled::kTooLarge:
      break;
  }
  return InvalidArgument("{} {}: more than 2^63 - 1 bytes; give a smaller size", what, Quoted(text));
}

absl::StatusOr<absl::Duration> ParseDuration(std::string_view what, std::string_view text) {
  constexpr std::string_view kForms = "give a number and ns, us, ms, s, m, min or h, such as 10s";
  const auto number = ReadDecimal(text);
  const Unit* unit = number ? FindUnit(kDurationUnits, number->rest) : nullptr;
  if (unit == nullptr) return InvalidArgument("{} {}: {}", what, Quoted(text), kForms);
  int64_t nanoseconds = 0;
  switch (Scale(*number, unit->scale, kNanosecondsMax, &nanoseconds)) {
    case Scaled::kWhole:
      return absl::Nanoseconds(nanoseconds);
    case Scaled::kFraction:
      return InvalidArgument("{} {}: not a whole number of nanoseconds; {}", what, Quoted(text), kForms);
    case Scaled::kTooLarge:
      break;
  }
  return InvalidArgument("{} {}: more than 10 years; give a shorter time", what, Quoted(text));
}

}  // namespace tenure
