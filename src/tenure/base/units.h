// Distinct integer types for quantities and ids, so that tokens are never added to bytes.
//
// A Quantity has arithmetic (sum, difference, scaling, whole quotient and remainder); an Id has none. Both are explicit
// in and `.value()` out. All are 64-bit signed or unsigned as named, values, and safe to copy between threads.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace tenure {

template <typename Tag, typename Rep>
class Id {
 public:
  constexpr Id() = default;
  constexpr explicit Id(Rep value) : value_(value) {}
  constexpr Rep value() const { return value_; }
  friend constexpr auto operator<=>(Id, Id) = default;

 private:
  Rep value_ = 0;
};

template <typename Tag>
class Quantity {
 public:
  constexpr Quantity() = default;
  constexpr explicit Quantity(int64_t value) : value_(value) {}
  constexpr int64_t value() const { return value_; }

  friend constexpr auto operator<=>(Quantity, Quantity) = default;
  friend constexpr Quantity operator+(Quantity a, Quantity b) { return Quantity(a.value_ + b.value_); }
  friend constexpr Quantity operator-(Quantity a, Quantity b) { return Quantity(a.value_ - b.value_); }
  friend constexpr Quantity operator*(Quantity a, int64_t factor) { return Quantity(a.value_ * factor); }
  friend constexpr int64_t operator/(Quantity a, Quantity b) { return a.value_ / b.value_; }
  friend constexpr Quantity operator%(Quantity a, Quantity b) { return Quantity(a.value_ % b.value_); }
  constexpr Quantity& operator+=(Quantity other) { return *this = *this + other; }
  constexpr Quantity& operator-=(Quantity other) { return *this = *this - other; }

 private:
  int64_t value_ = 0;
};

using Tokens = Quantity<struct TokensTag>;
using Bytes = Quantity<struct BytesTag>;

// a / b rounded up; both at least 0, b above 0.
constexpr int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int64_t CeilDiv(Tokens a, Tokens b) { return CeilDiv(a.value(), b.value()); }
// a rounded down to a multiple of b.
constexpr Tokens RoundDown(Tokens a, Tokens b) { return a - a % b; }

}  // namespace tenure

template <typename Tag, typename Rep>
struct std::hash<tenure::Id<Tag, Rep>> {
  size_t operator()(tenure::Id<Tag, Rep> id) const { return std::hash<Rep>{}(id.value()); }
};
