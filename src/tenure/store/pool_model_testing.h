// PoolModel: what an embedded pool must answer, written from the contract in plain maps. Where eviction is free to
// choose, the model learns the choice from what is visible afterwards and checks that it was allowed.
//
// Keys are small numbers. Every check returns the empty string or what is wrong. One thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tenure/base/clock.h"
#include "tenure/store/embedded_pool.h"

namespace tenure::store {

class PoolModel {
 public:
  enum class State : uint8_t { kWriting, kWaiting, kVisible };
  struct Object {
    State state = State::kWriting;
    uint64_t serial = 0;  // Tells objects of one key apart.
    int64_t size = 0;
    int version = 0;
    std::optional<int> parent;   // As the put named it; none in an independent pool.
    uint64_t parent_serial = 0;  // The visible object that this one hangs on; 0 while there is none.
    int64_t holders = 0;
    MonotonicTime deadline = MonotonicTime::Min();
    int64_t pins = 0;
    // The rank lies between these: the contract leaves open when a waiting object is stamped.
    MonotonicTime rank_low;
    MonotonicTime rank_high;
  };
  // Whose choice of victims is reconciled.
  enum class Call : uint8_t { kReads, kPut, kMaintain };
  // How often something worth testing happened.
  struct Coverage {
    int64_t evicted = 0;
    int64_t evicted_parents = 0;
    int64_t shown_after_waiting = 0;
    int64_t dropped_waiting = 0;
    int64_t removed_while_pinned = 0;
    int64_t orders_checked = 0;
  };

  // `one_size`: all objects have one size, so that the order of eviction is known.
  PoolModel(const EmbeddedPoolOptions& options, bool one_size) : options_(options), one_size_(one_size) {}

  const std::map<int, Object>& objects() const { return objects_; }
  const Coverage& coverage() const { return coverage_; }
  const Object* Visible(int key) const;
  bool IsLeased(const Object& object, MonotonicTime now) const { return now < object.deadline; }

  // Returns the serial leased, 0 for a miss.
  uint64_t Lease(int key, MonotonicTime until, MonotonicTime now);
  void Release(int key, uint64_t serial, MonotonicTime handle_deadline, MonotonicTime now);

  // Whether `answer` is right for a put (or reserve) of this object now; `single`: the batch has no other object.
  std::string CheckPut(int key, int64_t size, std::optional<int> parent, PutAnswer answer, bool single,
                       MonotonicTime now) const;
  // An accepted put, whole or in writing; `waits`: its answer was kWaiting. Returns its serial.
  uint64_t Add(int key, int64_t size, std::optional<int> parent, int version, State state, bool waits,
               MonotonicTime now);
  // Ends a writing object as the pool answered; checks that answer.
  std::string Commit(int key, uint64_t serial, PutAnswer answer, MonotonicTime now);
  void Abandon(int key, uint64_t serial);

  void Pin(int key) { ++objects_.at(key).pins; }
  void Unpin(int key, uint64_t serial);

  // The object and its descendants are gone; how many were visible. Absent or waiting keys too.
  int64_t Remove(int key);

  // Brings the model in line with what the pool shows after a call and checks that each difference was allowed, and the
  // counts. `visible` holds the keys present, ascending.
  std::string Reconcile(Call call, const std::vector<int>& visible, const PoolStats& before, const PoolStats& after,
                        MonotonicTime now);

 private:
  struct Ghost {  // Removed while it was pinned or in writing.
    int64_t size = 0;
    int64_t holders = 0;
  };

  bool Closed() const { return options_.mode == PoolMode::kClosed; }
  std::string CheckRefusal(int64_t size, std::optional<int> parent, MonotonicTime now) const;
  std::string CheckVictim(int key, const Object& object, MonotonicTime now) const;
  std::string CheckOrder(std::map<int, Object> victims, MonotonicTime now);
  std::string CheckWaiting(const PoolStats& after);
  std::string CheckCounts(const PoolStats& after, MonotonicTime now) const;
  std::string CheckWatermark(Call call, int64_t evicted, const PoolStats& before, const PoolStats& after);
  bool HasChild(uint64_t serial) const;
  bool HasOpenChild(uint64_t serial) const;
  bool CanLeave(const Object& object, MonotonicTime now) const;
  // The same once its descendants have left.
  bool CanLeaveInTime(const Object& object, MonotonicTime now) const;
  void Inherit(const std::map<int, Object>& victims);
  // The parent of an object that was removed, or left unseen, may have taken a rank of up to this.
  void RaiseRankOfParent(const Object& object, MonotonicTime rank);
  void ShowWaiting(const std::vector<int>& visible, MonotonicTime now);
  int64_t Count(State state) const;

  const EmbeddedPoolOptions options_;
  const bool one_size_;
  std::map<int, Object> objects_;
  std::map<uint64_t, Ghost> ghosts_;
  uint64_t next_serial_ = 1;
  int64_t adds_ = 0;  // These three: since the last Reconcile.
  int64_t added_bytes_ = 0;
  int64_t replaced_ = 0;
  int64_t waiting_added_ = 0;    // These three: ever.
  int64_t waiting_removed_ = 0;  // At most; some may have been dropped before.
  int64_t waiting_shown_ = 0;
  bool pass_may_run_ = false;
  Coverage coverage_;
};

}  // namespace tenure::store
