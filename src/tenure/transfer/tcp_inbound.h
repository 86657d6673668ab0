// The bytes of one writer's connection, as the side that is written to reads them: greeting, heads and parts
// (tcp_message.h), in any cuts. Each part is checked against registered memory before a byte of it is written.
//
// No I/O and no allocation that a writer could make grow. Bytes come in through Take, which copies what belongs to a
// part; the rest of a large part may be read straight into memory instead: `left()` bytes at `to()`, then Arrived.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "tenure/transfer/memory_map.h"
#include "tenure/transfer/tcp_message.h"

namespace tenure::transfer {

class TcpInbound {
 public:
  // `receiver` is what a greeting has to name.
  explicit TcpInbound(uint64_t receiver) : receiver_(receiver) {}

  enum class State {
    kGreeting,  // The greeting is not whole yet.
    kOpen,
    kRefused,  // Its last answer says why. What comes is dropped, until the writer has read that and closes.
    kBroken,   // Nothing of ours is at the other end: to be closed.
  };
  State state() const { return state_; }

  // The next bytes, all of them; `memory` is what is registered. Appends to `answers`.
  void Take(const MemoryMap& memory, std::string_view bytes);

  // The part that is on its way.
  uint64_t to() const { return to_; }
  uint64_t left() const { return left_; }  // 0: none.
  // So many of its bytes, at most `left()`, are in memory.
  void Arrived(uint64_t size);
  // Its memory is not there.
  void RefusePart() { Refuse(post_, Verdict::kOutside); }

  // Bytes to be sent to the writer; whoever sends them takes them from here.
  std::string answers;

 private:
  void TakeGreeting(const TcpGreeting& greeting);
  void TakePart(const MemoryMap& memory, const TcpPart& part);
  void Refuse(uint64_t post, Verdict verdict);
  void Answer(uint64_t post, Verdict verdict);
  // The head that comes next: sizes of all heads fit its buffer.
  size_t head_size() const { return state_ == State::kGreeting ? sizeof(TcpGreeting) : sizeof(TcpPart); }

  const uint64_t receiver_;
  State state_ = State::kGreeting;
  std::array<char, sizeof(TcpPart)> head_ = {};
  size_t head_have_ = 0;
  uint64_t post_ = 0;  // Of the part that came last.
  uint64_t total_ = 0;
  uint64_t received_ = 0;  // Bytes of the post's parts, with those of this part that are on their way.
  uint64_t to_ = 0;
  uint64_t left_ = 0;
};

}  // namespace tenure::transfer
