#include "tenure/pd/world_writer_testing.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "tenure/base/status.h"

namespace tenure::pd {

absl::Duration WorldWriter::Duration() {
  if (!faulty_ || random_.Chance(0.7)) return absl::Milliseconds(random_.Between(2, 50));
  if (random_.Chance(0.85)) return absl::Milliseconds(random_.Between(50, 1000));
  return absl::Milliseconds(random_.Between(1000, 15'000));
}

void WorldWriter::Post(WorldEnd from, WorldEnd to, std::vector<WritePiece> pieces, MonotonicTime deadline,
                       std::function<void(WriteResult)> done) {
  ++counts_.writes;
  auto write = std::make_shared<Write>(Write{std::move(from), std::move(to), std::move(pieces), std::move(done)});
  for (const WritePiece& piece : write->pieces) {
    write->from.memory->BeginUse(piece.from, piece.size);
    write->to.memory->BeginUse(piece.to, piece.size);
  }
  const absl::Duration duration = Duration();
  const absl::Duration allowed = deadline - loop_.now();
  const bool breaks = faulty_ && random_.Chance(0.02);
  const size_t half = write->pieces.size() / 2;
  loop_.After(std::min(duration, allowed) / 2, [this, write, half, breaks] {
    Land(*write, 0, half);
    if (breaks) End(write, Unavailable("the link broke"), true);
  });
  if (breaks) return;
  if (duration <= allowed) {
    return loop_.After(duration, [this, write, half] {
      const bool landed = Land(*write, half, write->pieces.size());
      End(write, landed ? absl::OkStatus() : Unavailable("the peer is gone"), true);
    });
  }
  const bool settled = random_.Chance(0.5);
  loop_.After(allowed, [this, write, settled] { End(write, absl::DeadlineExceededError("too slow"), settled); });
  if (settled) return;
  loop_.After(allowed + absl::Milliseconds(random_.Between(1, 10'000)), [this, write, half] {
    if (Land(*write, half, write->pieces.size())) {
      for (const WritePiece& piece : write->pieces) counts_.late_bytes += static_cast<int64_t>(piece.size);
    }
    EndUses(*write);
  });
}

bool WorldWriter::Land(const Write& write, size_t begin, size_t end) {
  if (!write.from.alive() || !write.to.alive()) return false;
  for (size_t i = begin; i < end; ++i) {
    const WritePiece& piece = write.pieces[i];
    std::memcpy(reinterpret_cast<void*>(piece.to), reinterpret_cast<const void*>(piece.from), piece.size);
  }
  return true;
}

void WorldWriter::EndUses(const Write& write) {
  for (const WritePiece& piece : write.pieces) {
    write.from.memory->EndUse(piece.from, piece.size);
    write.to.memory->EndUse(piece.to, piece.size);
  }
}

void WorldWriter::End(const std::shared_ptr<Write>& write, absl::Status status, bool settled) {
  if (!status.ok()) ++counts_.failed;
  if (settled) EndUses(*write);
  write->done({std::move(status), settled});
}

}  // namespace tenure::pd
