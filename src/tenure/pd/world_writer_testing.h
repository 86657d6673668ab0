// The transport of the simulated pair: writes take time, fail, and sometimes land after they have failed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "tenure/base/random.h"
#include "tenure/pd/world_events_testing.h"
#include "tenure/pd/world_memory_testing.h"
#include "tenure/pd/write_piece.h"
#include "tenure/pd/write_result.h"

namespace tenure::pd {

// An engine's process and memory in one life of it.
struct WorldEnd {
  std::shared_ptr<WorldMemory> memory;
  const WorldProcess* process;
  uint64_t life;
  bool alive() const { return process->life == life; }
};

struct WriterCounts {
  int64_t writes = 0;
  int64_t failed = 0;
  int64_t late_bytes = 0;
};

class WorldWriter {
 public:
  WorldWriter(EventLoop& loop, Random& random) : loop_(loop), random_(random) {}

  void set_faulty(bool faulty) { faulty_ = faulty; }
  const WriterCounts& counts() const { return counts_; }

  // Half of the pieces land on the way, the others at the end. `done` once.
  void Post(WorldEnd from, WorldEnd to, std::vector<WritePiece> pieces, MonotonicTime deadline,
            std::function<void(WriteResult)> done);

 private:
  struct Write {
    WorldEnd from;
    WorldEnd to;
    std::vector<WritePiece> pieces;
    std::function<void(WriteResult)> done;
  };

  absl::Duration Duration();
  // False: one of the ends is gone, nothing was copied.
  bool Land(const Write& write, size_t begin, size_t end);
  void EndUses(const Write& write);
  void End(const std::shared_ptr<Write>& write, absl::Status status, bool settled);

  EventLoop& loop_;
  Random& random_;
  bool faulty_ = true;
  WriterCounts counts_;
};

}  // namespace tenure::pd
