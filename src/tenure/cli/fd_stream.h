// An output stream on a file descriptor that remembers why a write failed. One thread.
#pragma once

#include <array>
#include <ostream>
#include <streambuf>

namespace tenure::cli {

class FdStreambuf final : public std::streambuf {
 public:
  // `descriptor` stays open and outlives this.
  explicit FdStreambuf(int descriptor);
  ~FdStreambuf() override;
  FdStreambuf(const FdStreambuf&) = delete;
  FdStreambuf& operator=(const FdStreambuf&) = delete;

  // errno of the first write that failed, or 0. Nothing is written after it.
  int error() const { return error_; }

 protected:
  int_type overflow(int_type character) override;
  int sync() override;

 private:
  bool Flush();

  int descriptor_;
  int error_ = 0;
  std::array<char, 1 << 16> buffer_;
};

}  // namespace tenure::cli
