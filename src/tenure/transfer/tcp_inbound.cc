#include "tenure/transfer/tcp_inbound.h"

#include <algorithm>
#include <cstring>

namespace tenure::transfer {

void TcpInbound::Take(const MemoryMap& memory, std::string_view bytes) {
  while (!bytes.empty() && (state_ == State::kGreeting || state_ == State::kOpen)) {
    if (left_ > 0) {
      const uint64_t size = std::min<uint64_t>(left_, bytes.size());
      std::memcpy(reinterpret_cast<void*>(to_), bytes.data(), size);
      Arrived(size);
      bytes.remove_prefix(size);
      continue;
    }
    const size_t size = std::min(head_size() - head_have_, bytes.size());
    std::memcpy(head_.data() + head_have_, bytes.data(), size);
    head_have_ += size;
    bytes.remove_prefix(size);
    if (head_have_ < head_size()) return;
    head_have_ = 0;
    if (state_ == State::kGreeting) {
      TakeGreeting(ReadHead<TcpGreeting>(head_.data()));
    } else {
      TakePart(memory, ReadHead<TcpPart>(head_.data()));
    }
  }
}

void TcpInbound::TakeGreeting(const TcpGreeting& greeting) {
  if (greeting.magic != kTcpGreeting) {
    state_ = State::kBroken;
  } else if (greeting.receiver != receiver_) {
    Refuse(kTcpGreeting, Verdict::kOtherReceiver);
  } else {
    state_ = State::kOpen;
    Answer(kTcpGreeting, Verdict::kWritten);
  }
}

void TcpInbound::TakePart(const MemoryMap& memory, const TcpPart& part) {
  if (part.post != post_ || received_ == total_) {
    post_ = part.post;
    total_ = part.total;
    received_ = 0;
  }
  if (part.size == 0 || part.total != total_ || part.size > total_ - received_ ||
      memory.Find(part.to, part.size) == MemoryMap::kNone) {
    return Refuse(part.post, Verdict::kOutside);
  }
  received_ += part.size;
  to_ = part.to;
  left_ = part.size;
}

void TcpInbound::Arrived(uint64_t size) {
  to_ += size;
  left_ -= size;
  if (left_ == 0 && received_ == total_) Answer(post_, Verdict::kWritten);
}

void TcpInbound::Refuse(uint64_t post, Verdict verdict) {
  left_ = 0;
  state_ = State::kRefused;
  Answer(post, verdict);
}

void TcpInbound::Answer(uint64_t post, Verdict verdict) {
  const TcpAnswer answer = {post, verdict};
  answers.append(reinterpret_cast<const char*>(&answer), sizeof(answer));
}

}  // namespace tenure::transfer
