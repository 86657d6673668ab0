// The calls of Mooncake's Python client that the Mooncake pool makes, as C++ functions with C++ values.
//
// Every method may block as long as Mooncake does and takes the interpreter's lock itself; call them without it, from
// any thread. The store is closed by the destructor alone: whoever makes a call owns the client, so no call can meet a
// closed store (Mooncake 0.3.14 ends the process then). Codes: mooncake_store spec §3.2.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "bindings/mooncake_keys.h"

namespace tenure::python {

namespace mooncake_code {
inline constexpr int64_t kNoSpace = -200;
inline constexpr int64_t kBadParameters = -600;
inline constexpr int64_t kNotReady = -703;
inline constexpr int64_t kNotFound = -704;
inline constexpr int64_t kLeaseExpired = -707;
inline constexpr int64_t kTransferFailed = -800;
}  // namespace mooncake_code

// A contiguous run of memory that Mooncake reads or writes; a device's too.
struct MooncakePiece {
  uint64_t address;
  uint64_t size;
};

// The memory of a batch: each key's object is the concatenation of its pieces.
class MooncakePieces {
 public:
  void Append(std::span<const MooncakePiece> key) {
    pieces_.insert(pieces_.end(), key.begin(), key.end());
    ends_.push_back(pieces_.size());
  }

  size_t size() const { return ends_.size(); }  // Keys.
  std::span<const MooncakePiece> operator[](size_t key) const {
    const size_t begin = key == 0 ? 0 : ends_[key - 1];
    return std::span(pieces_).subspan(begin, ends_[key] - begin);
  }
  uint64_t BytesOf(size_t key) const {
    uint64_t bytes = 0;
    for (const MooncakePiece& piece : (*this)[key]) bytes += piece.size;
    return bytes;
  }

 private:
  std::vector<MooncakePiece> pieces_;
  std::vector<size_t> ends_;
};

class MooncakeClient {
 public:
  // `store`: a mooncake.store.MooncakeDistributedStore, not yet set up. `replicate_config`: a ReplicateConfig for every
  // put. With the interpreter's lock held, here alone.
  MooncakeClient(nanobind::object store, nanobind::object replicate_config);
  ~MooncakeClient();
  MooncakeClient(const MooncakeClient&) = delete;
  MooncakeClient& operator=(const MooncakeClient&) = delete;

  // Memory that Mooncake knows of must not go before the store is closed.
  void KeepUntilClosed(std::shared_ptr<const void> memory) { kept_ = std::move(memory); }

  absl::Status Setup(const nanobind::tuple& arguments);
  absl::Status RegisterBuffer(MooncakePiece buffer);
  absl::Status UnregisterBuffer(MooncakePiece buffer);

  // One code a key, in their order; an error when Mooncake raises or answers another number of codes.
  absl::StatusOr<std::vector<int64_t>> Probe(const MooncakeKeys& keys);
  absl::StatusOr<std::vector<int64_t>> Exists(const MooncakeKeys& keys);  // Leases what it finds.
  absl::StatusOr<std::vector<int64_t>> Put(const MooncakeKeys& keys, const MooncakePieces& pieces);
  absl::StatusOr<std::vector<int64_t>> Get(const MooncakeKeys& keys, const MooncakePieces& pieces);
  absl::StatusOr<std::vector<int64_t>> Remove(const MooncakeKeys& keys);

  absl::StatusOr<int64_t> SizeOf(const MooncakeKey& key);  // Leases the key.
  absl::StatusOr<int64_t> RemoveByRegex(const std::string& pattern);
  absl::StatusOr<int64_t> RemoveAll();

 private:
  bool Answers();

  nanobind::object store_;
  nanobind::object replicate_config_;
  std::shared_ptr<const void> kept_;
  bool is_set_up_ = false;
};

}  // namespace tenure::python
