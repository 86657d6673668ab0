#include "tenure/pd/msgpack_reader.h"

#include <bit>
#include <limits>

#include "tenure/base/status.h"
#include "tenure/base/text.h"

namespace tenure::pd {

void MsgpackReader::Fail(const char* problem) {
  if (problem_ == nullptr) problem_ = problem;
}

absl::Status MsgpackReader::Finish(std::string_view what) {
  if (!failed() && left() > 0) {
    field_ = "the message";
    Fail("goes on after its end");
  }
  if (!failed()) return absl::OkStatus();
  return InvalidArgument("{}: {} {} (byte {} of {}); send what docs/reference/pd-wire.md describes", what, field_,
                         problem_, at_, message_.size());
}

std::string_view MsgpackReader::Take(size_t bytes) {
  if (failed()) return {};
  if (bytes > left()) {
    Fail("ends too early");
    return {};
  }
  const std::string_view taken = message_.substr(at_, bytes);
  at_ += bytes;
  return taken;
}

uint64_t MsgpackReader::Byte() {
  if (failed() || left() == 0) {
    Fail("ends too early");
    return 0;
  }
  return static_cast<uint8_t>(message_[at_++]);
}

uint64_t MsgpackReader::BigEndian(size_t bytes) {
  uint64_t value = 0;
  for (const char byte : Take(bytes)) value = value << 8 | static_cast<uint8_t>(byte);
  return value;
}

size_t MsgpackReader::Count(uint64_t count, size_t bytes_each) {
  if (failed()) return 0;
  if (count > left() / bytes_each) {
    Fail("counts more items than the message has bytes for");
    return 0;
  }
  return count;
}

size_t MsgpackReader::Map() {
  const uint64_t tag = Byte();
  if (tag >= 0x80 && tag <= 0x8F) return Count(tag & 0xF, 2);
  if (tag == 0xDE) return Count(BigEndian(2), 2);
  if (tag == 0xDF) return Count(BigEndian(4), 2);
  Fail("is not a map");
  return 0;
}

size_t MsgpackReader::Array(size_t items_max) {
  const uint64_t tag = Byte();
  size_t count = 0;
  if (tag >= 0x90 && tag <= 0x9F) {
    count = Count(tag & 0xF, 1);
  } else if (tag == 0xDC) {
    count = Count(BigEndian(2), 1);
  } else if (tag == 0xDD) {
    count = Count(BigEndian(4), 1);
  } else {
    Fail("is not a list");
  }
  if (count <= items_max) return count;
  Fail("has too many items");
  return 0;
}

std::string_view MsgpackReader::RawText() {
  const uint64_t tag = Byte();
  if (tag >= 0xA0 && tag <= 0xBF) return Take(tag & 0x1F);
  if (tag == 0xD9) return Take(BigEndian(1));
  if (tag == 0xDA) return Take(BigEndian(2));
  if (tag == 0xDB) return Take(BigEndian(4));
  Fail("is not a text");
  return {};
}

void MsgpackReader::Read(std::string& value) {
  const std::string_view text = RawText();
  if (text.size() > kTextBytesMax) Fail("is too long");
  if (!failed() && !IsUtf8(text)) Fail("is not UTF-8");
  value.assign(failed() ? std::string_view() : text);
}

void MsgpackReader::ReadBytes(std::string& value) {
  const uint64_t tag = Byte();
  if (!failed() && (tag < 0xC4 || tag > 0xC6)) Fail("is not bytes");
  if (failed()) return value.clear();
  const std::string_view bytes = Take(BigEndian(size_t{1} << (tag - 0xC4)));
  if (bytes.size() > kBytesMax) Fail("is too long");
  value.assign(failed() ? std::string_view() : bytes);
}

void MsgpackReader::Read(int64_t& value) {
  value = 0;
  const uint64_t tag = Byte();
  if (failed()) return;
  if (tag >= 0xE0) {
    value = static_cast<int8_t>(tag);
  } else if (tag >= 0xD0 && tag <= 0xD3) {
    const int unused = 64 - (8 << (tag - 0xD0));
    const uint64_t bits = BigEndian(size_t{1} << (tag - 0xD0)) << unused;
    value = static_cast<int64_t>(bits) >> unused;
  } else {
    --at_;
    uint64_t magnitude = 0;
    Read(magnitude);
    if (magnitude > static_cast<uint64_t>(INT64_MAX)) Fail("is too large a number");
    value = failed() ? 0 : static_cast<int64_t>(magnitude);
  }
}

void MsgpackReader::Read(uint64_t& value) {
  value = 0;
  const uint64_t tag = Byte();
  if (failed()) return;
  if (tag <= 0x7F) {
    value = tag;
  } else if (tag >= 0xCC && tag <= 0xCF) {
    value = BigEndian(size_t{1} << (tag - 0xCC));
  } else {
    Fail(tag >= 0xD0 && (tag <= 0xD3 || tag >= 0xE0) ? "is a negative number" : "is not a whole number");
  }
}

void MsgpackReader::Read(double& value) {
  value = 0;
  const uint64_t tag = Byte();
  if (failed()) return;
  if (tag == 0xCA) {
    value = static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(BigEndian(4))));
  } else if (tag == 0xCB) {
    value = std::bit_cast<double>(BigEndian(8));
  } else {
    --at_;
    int64_t whole = 0;
    Read(whole);
    value = static_cast<double>(whole);
  }
}

bool MsgpackReader::Nil() {
  if (failed() || left() == 0 || static_cast<uint8_t>(message_[at_]) != 0xC0) return false;
  ++at_;
  return true;
}

void MsgpackReader::Skip() {
  // What is pending never passes the bytes that are left, so the loop is bounded by the message.
  uint64_t pending = 1;
  while (pending > 0 && !failed()) {
    --pending;
    if (!SkipInto(pending)) return;
    if (pending > left()) Fail("counts more items than the message has bytes for");
  }
}

// Skips the head of one value and the bytes it has itself; adds the values inside it to `values`.
bool MsgpackReader::SkipInto(uint64_t& values) {
  const uint64_t tag = Byte();
  if (tag <= 0x7F || tag >= 0xE0 || tag == 0xC0 || tag == 0xC2 || tag == 0xC3) return !failed();
  if (tag <= 0x8F) {
    values += 2 * (tag & 0xF);
  } else if (tag <= 0x9F) {
    values += tag & 0xF;
  } else if (tag <= 0xBF) {
    Take(tag & 0x1F);
  } else if (tag >= 0xC4 && tag <= 0xC6) {  // Bytes.
    Take(BigEndian(size_t{1} << (tag - 0xC4)));
  } else if (tag >= 0xC7 && tag <= 0xC9) {  // Extensions: a length, a type, the bytes.
    Take(BigEndian(size_t{1} << (tag - 0xC7)) + 1);
  } else if (tag == 0xCA || tag == 0xCB) {
    Take(tag == 0xCA ? 4 : 8);
  } else if (tag >= 0xCC && tag <= 0xD3) {
    Take(size_t{1} << ((tag - 0xCC) & 3));
  } else if (tag >= 0xD4 && tag <= 0xD8) {
    Take((size_t{1} << (tag - 0xD4)) + 1);
  } else if (tag >= 0xD9 && tag <= 0xDB) {
    Take(BigEndian(size_t{1} << (tag - 0xD9)));
  } else if (tag == 0xDC || tag == 0xDD) {
    values += BigEndian(tag == 0xDC ? 2 : 4);
  } else if (tag == 0xDE || tag == 0xDF) {
    values += 2 * BigEndian(tag == 0xDE ? 2 : 4);
  } else {
    Fail("has a byte that MessagePack does not use");
  }
  return !failed();
}

}  // namespace tenure::pd
