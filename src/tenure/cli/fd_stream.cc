#include "tenure/cli/fd_stream.h"

#include <unistd.h>

#include <cerrno>

namespace tenure::cli {

FdStreambuf::FdStreambuf(int descriptor) : descriptor_(descriptor) {
  setp(buffer_.data(), buffer_.data() + buffer_.size());
}

FdStreambuf::~FdStreambuf() { Flush(); }

bool FdStreambuf::Flush() {
  const char* begin = pbase();
  while (error_ == 0 && begin < pptr()) {
    const ssize_t count = write(descriptor_, begin, static_cast<size_t>(pptr() - begin));
    if (count >= 0) {
      begin += count;
    } else if (errno != EINTR) {
      error_ = errno;
    }
  }
  setp(buffer_.data(), buffer_.data() + buffer_.size());
  return error_ == 0;
}

FdStreambuf::int_type FdStreambuf::overflow(int_type character) {
  if (!Flush()) return traits_type::eof();
  if (!traits_type::eq_int_type(character, traits_type::eof())) sputc(traits_type::to_char_type(character));
  return traits_type::not_eof(character);
}

int FdStreambuf::sync() { return Flush() ? 0 : -1; }

}  // namespace tenure::cli
