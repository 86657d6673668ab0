#include "bindings/errors.h"

#include <nanobind/nanobind.h>

#include "bindings/bind.h"
#include "tenure/base/status.h"
#include "tenure/kv/cache_config.h"

namespace nb = nanobind;

namespace tenure::python {
namespace {

// Live as long as the process, as the module that holds them does.
PyObject* error_type = nullptr;
PyObject* unavailable_type = nullptr;
PyObject* exhausted_type = nullptr;

PyObject* NewException(nb::module_& module, const char* name, const char* doc, PyObject* base) {
  const std::string full_name = fmt::format("tenure.{}", name);
  PyObject* type = PyErr_NewExceptionWithDoc(full_name.c_str(), doc, base, nullptr);
  if (type == nullptr) throw nb::python_error();
  module.attr(name) = nb::borrow(type);
  return type;
}

PyObject* TypeOf(const absl::Status& status) {
  if (absl::IsInvalidArgument(status)) return PyExc_ValueError;
  if (absl::IsUnavailable(status)) return unavailable_type;
  if (absl::IsResourceExhausted(status)) return exhausted_type;
  return error_type;
}

}  // namespace

void Throw(const absl::Status& status) {
  const std::string text(Message(status));
  PyErr_SetString(TypeOf(status), text.c_str());
  throw nb::python_error();
}

void CheckRange(std::string_view what, int64_t value, int64_t minimum, int64_t maximum) {
  if (value < minimum || value > maximum)
    Throw(InvalidArgument("{} is {}; use {} to {}", what, value, minimum, maximum));
}

Tokens TokensFrom(std::string_view what, int64_t value, int64_t minimum) {
  CheckRange(what, value, minimum, kv::CacheConfig::kTokensMax);
  return Tokens(value);
}

absl::Duration DurationFrom(std::string_view what, double seconds, absl::Duration maximum) {
  if (!(seconds > 0 && seconds <= absl::ToDoubleSeconds(maximum))) {
    Throw(
        InvalidArgument("{} is {} s; use more than 0 and at most {} s", what, seconds, absl::ToDoubleSeconds(maximum)));
  }
  return absl::Seconds(seconds);
}

void BindErrors(nb::module_& module) {
  error_type =
      NewException(module, "Error", "What went wrong in Tenure and is not a ValueError; the base of the others.",
                   PyExc_RuntimeError);
  unavailable_type = NewException(module, "PoolUnavailable",
                                  "The pool cannot be reached, or did not answer within its deadline.", error_type);
  exhausted_type =
      NewException(module, "ResourceExhausted", "A named maximum is reached, or memory cannot be had.", error_type);
}

}  // namespace tenure::python
