#include "bindings/mooncake_client.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <exception>
#include <utility>

#include "bindings/lock_guard.h"
#include "tenure/base/log.h"
#include "tenure/base/status.h"

namespace nb = nanobind;

namespace tenure::python {
namespace {

// Runs `call` with the interpreter's lock and turns what it raises into a status. `what` names Mooncake's function.
template <typename Result, typename Call>
absl::StatusOr<Result> WithLock(const char* what, Call call) {
  const LockHeld locked;
  try {
    return call();
  } catch (const nb::python_error& error) {
    return Unavailable("Mooncake's {} failed: {}", what, nb::str(error.value()).c_str());
  } catch (const std::exception& error) {
    return Unavailable("Mooncake's {} failed: {}", what, error.what());
  }
}

// See LockHeld: a call that comes back while the interpreter goes away must not be unwound through ours.
PyObject* CallObject(PyObject* function, PyObject* arguments) noexcept {
  return PyObject_CallObject(function, arguments);
}

nb::object Checked(PyObject* made) {
  if (made == nullptr) throw nb::python_error();
  return nb::steal(made);
}

nb::object Call(const nb::object& store, const char* name, const nb::tuple& arguments) {
  const nb::object function = store.attr(name);
  return Checked(CallObject(function.ptr(), arguments.ptr()));
}

absl::StatusOr<std::vector<int64_t>> CodesFrom(const char* what, const nb::object& answer, size_t keys) {
  auto codes = nb::cast<std::vector<int64_t>>(answer);
  if (codes.size() != keys) return Unavailable("Mooncake's {} answered {} codes for {} keys", what, codes.size(), keys);
  return codes;
}

nb::list ListOfLists(const MooncakePieces& pieces, uint64_t MooncakePiece::*field) {
  nb::list outer;
  for (size_t key = 0; key < pieces.size(); ++key) {
    nb::list inner;
    for (const MooncakePiece& piece : pieces[key]) inner.append(piece.*field);
    outer.append(inner);
  }
  return outer;
}

}  // namespace

MooncakeClient::MooncakeClient(nb::object store, nb::object replicate_config)
    : store_(std::move(store)), replicate_config_(std::move(replicate_config)) {}

// Mooncake's close holds the interpreter's lock while it waits for a master that does not answer (31 s were seen),
// which would stop every thread of the process. So a store whose master is gone is left to the end of the process.
MooncakeClient::~MooncakeClient() {
  const bool answers = is_set_up_ && Answers();
  const LockHeld locked;
  replicate_config_.reset();
  if (is_set_up_ && !answers) {
    LogWarning("Mooncake's master does not answer; its client is left open until the process ends");
    store_.release();
    new std::shared_ptr<const void>(std::move(kept_));  // The open client knows this memory.
    return;
  }
  try {
    if (is_set_up_) Call(store_, "close", nb::tuple());
  } catch (const std::exception& error) {
    LogWarning("Mooncake's close failed: {}", error.what());
  }
  store_.reset();
}

bool MooncakeClient::Answers() {
  const auto prefixes = std::make_shared<const MooncakePrefixes>(1, MooncakePrefix("tenure"));
  MooncakeKeys keys(prefixes);
  keys.Append({&prefixes->front(), {}});
  const auto codes = Probe(keys);
  return codes.ok() && codes->front() >= 0;
}

absl::Status MooncakeClient::Setup(const nb::tuple& arguments) {
  const auto code = WithLock<int64_t>("setup", [&] { return nb::cast<int64_t>(Call(store_, "setup", arguments)); });
  TENURE_RETURN_IF_ERROR(code.status());
  is_set_up_ = *code == 0;
  if (!is_set_up_) {
    return Unavailable("Mooncake's setup answered {}; is master_server_address right and reachable?", *code);
  }
  return absl::OkStatus();
}

absl::Status MooncakeClient::RegisterBuffer(MooncakePiece buffer) {
  const auto code = WithLock<int64_t>("register_buffer", [&] {
    return nb::cast<int64_t>(Call(store_, "register_buffer", nb::make_tuple(buffer.address, buffer.size)));
  });
  TENURE_RETURN_IF_ERROR(code.status());
  if (*code != 0) return Unavailable("Mooncake's register_buffer answered {} for {} bytes", *code, buffer.size);
  return absl::OkStatus();
}

absl::Status MooncakeClient::UnregisterBuffer(MooncakePiece buffer) {
  const auto code = WithLock<int64_t>("unregister_buffer", [&] {
    return nb::cast<int64_t>(Call(store_, "unregister_buffer", nb::make_tuple(buffer.address)));
  });
  TENURE_RETURN_IF_ERROR(code.status());
  if (*code != 0) return Unavailable("Mooncake's unregister_buffer answered {} for {} bytes", *code, buffer.size);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int64_t>> MooncakeClient::Probe(const MooncakeKeys& keys) {
  return WithLock<std::vector<int64_t>>("batch_probe_key", [&] {
    return CodesFrom("batch_probe_key", Call(store_, "batch_probe_key", nb::make_tuple(Checked(keys.ToPython()))),
                     keys.size());
  });
}

absl::StatusOr<std::vector<int64_t>> MooncakeClient::Exists(const MooncakeKeys& keys) {
  return WithLock<std::vector<int64_t>>("batch_is_exist", [&] {
    return CodesFrom("batch_is_exist", Call(store_, "batch_is_exist", nb::make_tuple(Checked(keys.ToPython()))),
                     keys.size());
  });
}

absl::StatusOr<std::vector<int64_t>> MooncakeClient::Put(const MooncakeKeys& keys, const MooncakePieces& pieces) {
  constexpr const char* kCall = "batch_put_from_multi_buffers";
  return WithLock<std::vector<int64_t>>(kCall, [&] {
    const nb::list addresses = ListOfLists(pieces, &MooncakePiece::address);
    const nb::list sizes = ListOfLists(pieces, &MooncakePiece::size);
    return CodesFrom(kCall,
                     Call(store_, kCall, nb::make_tuple(Checked(keys.ToPython()), addresses, sizes, replicate_config_)),
                     keys.size());
  });
}

absl::StatusOr<std::vector<int64_t>> MooncakeClient::Get(const MooncakeKeys& keys, const MooncakePieces& pieces) {
  constexpr const char* kCall = "batch_get_into_multi_buffers";
  return WithLock<std::vector<int64_t>>(kCall, [&] {
    const nb::list addresses = ListOfLists(pieces, &MooncakePiece::address);
    const nb::list sizes = ListOfLists(pieces, &MooncakePiece::size);
    return CodesFrom(kCall, Call(store_, kCall, nb::make_tuple(Checked(keys.ToPython()), addresses, sizes)),
                     keys.size());
  });
}

absl::StatusOr<std::vector<int64_t>> MooncakeClient::Remove(const MooncakeKeys& keys) {
  return WithLock<std::vector<int64_t>>("batch_remove", [&] {
    return CodesFrom("batch_remove", Call(store_, "batch_remove", nb::make_tuple(Checked(keys.ToPython()), true)),
                     keys.size());
  });
}

absl::StatusOr<int64_t> MooncakeClient::SizeOf(const MooncakeKey& key) {
  return WithLock<int64_t>(
      "get_size", [&] { return nb::cast<int64_t>(Call(store_, "get_size", nb::make_tuple(Checked(key.ToPython())))); });
}

absl::StatusOr<int64_t> MooncakeClient::RemoveByRegex(const std::string& pattern) {
  return WithLock<int64_t>("remove_by_regex", [&] {
    return nb::cast<int64_t>(Call(store_, "remove_by_regex", nb::make_tuple(pattern, true)));
  });
}

absl::StatusOr<int64_t> MooncakeClient::RemoveAll() {
  return WithLock<int64_t>("remove_all",
                           [&] { return nb::cast<int64_t>(Call(store_, "remove_all", nb::make_tuple(true))); });
}

}  // namespace tenure::python
