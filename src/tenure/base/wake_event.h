// Wakes a thread that waits in poll or epoll. Wake from any thread.
#pragma once

namespace tenure {

class WakeEvent {
 public:
  WakeEvent();  // Without a descriptor when the process has none left: see valid().
  ~WakeEvent();
  WakeEvent(const WakeEvent&) = delete;
  WakeEvent& operator=(const WakeEvent&) = delete;

  bool valid() const { return fd_ >= 0; }
  int fd() const { return fd_; }  // Readable once woken.
  void Wake() const;
  void Clear() const;

 private:
  const int fd_;
};

}  // namespace tenure
