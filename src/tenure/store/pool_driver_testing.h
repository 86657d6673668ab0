// PoolDriver: one random operation after the other on an embedded pool and on its model, with every answer and every
// byte compared.
//
// The choices come from a function, so that a seed or a fuzzer's bytes may make them. One thread at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tenure/base/clock.h"
#include "tenure/store/embedded_pool.h"
#include "tenure/store/pool_model_testing.h"

namespace tenure::store {

class PoolDriver {
 public:
  // A number in [0, bound).
  using Choose = std::function<uint64_t(uint64_t bound)>;
  struct Setup {
    EmbeddedPoolOptions options;
    std::vector<int64_t> sizes;  // Of objects, chosen among evenly; some may be too large.
    int keys = 48;
  };

  PoolDriver(const Setup& setup, Choose choose);

  // What is wrong, or empty. After a violation nothing more may be asked.
  std::string Step();
  // Ends every lease, pin and reservation, clears the pool and looks whether anything is left.
  std::string Finish();

  // The last steps, a line each.
  std::string History() const;
  const PoolModel::Coverage& coverage() const { return model_.coverage(); }
  PoolStats stats() const { return pool_->Stats(); }

 private:
  struct HeldLease {
    Lease handle;
    MonotonicTime deadline;
    std::vector<std::pair<int, uint64_t>> held;  // Key, serial.
  };
  struct OpenPut {
    Reservation reservation;
    int key = 0;
    uint64_t serial = 0;
    int version = 0;
  };
  struct OpenPin {
    PinnedObject pin;
    int key = 0;
    uint64_t serial = 0;
    int version = 0;
  };
  // The objects of one put, with what their views point to.
  struct Batch {
    std::vector<int> keys;
    std::vector<int64_t> sizes;
    std::vector<std::optional<int>> parents;
    std::vector<int> versions;
    std::vector<std::vector<std::byte>> bytes;
    std::vector<ConstSegment> segments;
    std::vector<PutObject> objects;
  };

  std::string Probe();
  std::string Acquire();
  std::string EndLease();
  std::string Put();
  std::string Get();
  std::string Reserve();
  std::string EndPut();
  std::string Pin();
  std::string EndPin();
  std::string Remove();
  std::string Clear();
  std::string Maintain();
  std::string Advance();

  Batch MakeBatch(bool with_bytes);
  std::vector<int> ChooseKeys(size_t most);
  std::vector<ObjectKey> ObjectKeys(const std::vector<int>& keys) const;
  bool Chance(uint64_t one_in) { return choose_(one_in) == 0; }
  MonotonicTime Now() const { return clock_.Now(); }
  void Note(std::string line);
  // Probes every key and lets the model judge what `call` did.
  std::string Reconcile(PoolModel::Call call, const PoolStats& before);

  const Setup setup_;
  const bool has_bytes_;
  const Choose choose_;
  ManualClock clock_;
  std::unique_ptr<EmbeddedPool> pool_;
  PoolModel model_;
  std::vector<ObjectKey> keys_;
  std::vector<HeldLease> leases_;
  std::vector<OpenPut> puts_;
  std::vector<OpenPin> pins_;
  int next_version_ = 1;
  std::deque<std::string> history_;
};

}  // namespace tenure::store
