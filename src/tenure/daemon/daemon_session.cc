#include "tenure/daemon/daemon_session.h"

#include <utility>

#include "tenure/base/status.h"

namespace tenure::daemon {
namespace {

using store::KeyAnswer;
using store::PutAnswer;

uint64_t OffsetOf(const store::SlotMemory& memory) { return static_cast<uint64_t>(memory.offset); }

}  // namespace

template <typename Reply>
DaemonSession::Next DaemonSession::Answer(const Reply& reply) {
  AppendFrame(reply, request_, *out_);
  return Next::kGoOn;
}

DaemonSession::Next DaemonSession::Refuse(ErrorCode code, std::string text) {
  ++state_.errors_total;
  if (text.size() > kErrorTextMax) text.resize(kErrorTextMax);
  AppendFrame(ErrorReply{.code = code, .text = std::move(text)}, request_, *out_);
  return code == ErrorCode::kVersion || code == ErrorCode::kProtocol ? Next::kOver : Next::kGoOn;
}

DaemonSession::Next DaemonSession::Refuse(const absl::Status& status) {
  const bool full = absl::IsResourceExhausted(status);
  return Refuse(full ? ErrorCode::kResourceExhausted : ErrorCode::kInvalidArgument, std::string(Message(status)));
}

DaemonSession::Next DaemonSession::Malformed(std::string_view what) {
  return Refuse(ErrorCode::kProtocol, fmt::format("malformed {} message; the connection ends", what));
}

DaemonSession::Next DaemonSession::Draining() { return Refuse(ErrorCode::kUnavailable, "the daemon is about to end"); }

DaemonSession::Next DaemonSession::Handle(const FrameHeader& header, std::span<const std::byte> body,
                                          std::vector<std::byte>& out) {
  ++state_.messages_total;
  request_ = header.request;
  out_ = &out;
  const auto type = static_cast<MessageType>(header.type);
  if (type == MessageType::kHello) return Hello(body);
  if (!greeted_) return Refuse(ErrorCode::kProtocol, "the first message of a connection is hello; the connection ends");
  switch (type) {
    case MessageType::kOpenNamespace:
      return OpenNamespace(body);
    case MessageType::kProbe:
      return Probe(body);
    case MessageType::kLease:
      return Lease(body);
    case MessageType::kReleaseLease:
      return ReleaseLease(body);
    case MessageType::kReserve:
      return Reserve(body);
    case MessageType::kCommit:
      return Commit(body);
    case MessageType::kAbandon:
      return Abandon(body);
    case MessageType::kPin:
      return Pin(body);
    case MessageType::kUnpin:
      return Unpin(body);
    case MessageType::kRemove:
      return Remove(body);
    case MessageType::kClear:
      return Clear(body);
    case MessageType::kStats:
      return Stats(body);
    case MessageType::kHello:
    case MessageType::kError:
      break;
  }
  return Refuse(ErrorCode::kUnsupported,
                fmt::format("message type {} is unknown to version {}.{}", header.type, kWireMajor, kWireMinor));
}

DaemonSession::Next DaemonSession::Hello(std::span<const std::byte> body) {
  HelloRequest hello;
  // A later minor version may have added fields behind these.
  WireReader reader(body);
  HelloRequest::Fields(hello, reader);
  if (greeted_ || reader.failed() || hello.magic != kHelloMagic) return Malformed("hello");
  if (hello.major != kWireMajor) {
    return Refuse(ErrorCode::kVersion,
                  fmt::format("the client speaks version {}.{}, the daemon {}.{}; use the same release on both sides",
                              hello.major, hello.minor, kWireMajor, kWireMinor));
  }
  if (state_.draining) return Draining();
  greeted_ = true;
  Answer(HelloReply{.major = kWireMajor,
                    .minor = kWireMinor,
                    .closed = state_.closed ? uint8_t{1} : uint8_t{0},
                    .memory_bytes = static_cast<uint64_t>(state_.memory.value()),
                    .held_bytes_max = static_cast<uint64_t>(state_.limits.held_bytes_max.value()),
                    .object_bytes_max = static_cast<uint64_t>(state_.object_max.value())});
  return Next::kSendMemory;
}

DaemonSession::Next DaemonSession::OpenNamespace(std::span<const std::byte> body) {
  OpenNamespaceRequest open;
  if (!DecodeBody(body, open)) return Malformed("open_namespace");
  const absl::StatusOr<kv::NamespaceId> id = pool_.OpenNamespace(open.prefix);
  return id.ok() ? Answer(OpenNamespaceReply{.name_space = id->value()}) : Refuse(id.status());
}

DaemonSession::Next DaemonSession::Probe(std::span<const std::byte> body) {
  if (!DecodeBody(body, probe_)) return Malformed("probe");
  probe_reply_.answers.assign(probe_.keys.size(), KeyAnswer::kAbsent);
  if (absl::Status status = pool_.Probe(probe_.keys, probe_reply_.answers); !status.ok()) return Refuse(status);
  return Answer(probe_reply_);
}

DaemonSession::Next DaemonSession::Lease(std::span<const std::byte> body) {
  if (!DecodeBody(body, lease_)) return Malformed("lease");
  if (state_.draining) return Draining();
  const auto keys = static_cast<int64_t>(lease_.keys.size());
  if (!holdings_.HasRoomForLease(keys, clock_.Now())) {
    return Refuse(ResourceExhausted("{} more leased keys would be above {} a client; release leases or shorten them",
                                    keys, state_.limits.leased_keys_max));
  }
  lease_reply_.answers.assign(lease_.keys.size(), KeyAnswer::kAbsent);
  absl::StatusOr<store::Lease> lease =
      pool_.AcquireLease(lease_.keys, absl::Nanoseconds(lease_.ttl_nanoseconds), lease_reply_.answers);
  if (!lease.ok()) return Refuse(lease.status());
  lease_reply_.lease = lease->size() == 0 ? 0 : holdings_.AddLease(*std::move(lease));
  return Answer(lease_reply_);
}

DaemonSession::Next DaemonSession::ReleaseLease(std::span<const std::byte> body) {
  ReleaseLeaseRequest release;
  if (!DecodeBody(body, release)) return Malformed("release_lease");
  for (const uint64_t lease : release.leases) holdings_.ReleaseLease(lease);
  return Next::kGoOn;
}

DaemonSession::Next DaemonSession::Reserve(std::span<const std::byte> body) {
  if (!DecodeBody(body, reserve_)) return Malformed("reserve");
  if (state_.draining) return Draining();
  const size_t count = reserve_.objects.size();
  sizes_.resize(count);
  objects_.clear();
  Bytes bytes;
  for (size_t i = 0; i < count; ++i) {
    const ReserveObject& object = reserve_.objects[i];
    if (object.kind > store::ObjectKind::kOther || object.size > static_cast<uint64_t>(INT64_MAX))
      return Malformed("reserve");
    // An object above object_max is refused by its size, so it takes none of the client's room.
    if (object.size <= static_cast<uint64_t>(state_.object_max.value()))
      bytes += Bytes(static_cast<int64_t>(object.size));
    // A client that holds too much gets room for the first objects of the batch and a refusal for the rest.
    if (!holdings_.HasRoom(bytes, static_cast<int64_t>(i) + 1)) break;
    sizes_[i] = {.data = nullptr, .size = object.size};
    objects_.push_back({.key = object.key,
                        .segments = std::span(&sizes_[i], 1),
                        .parent = object.has_parent != 0 ? std::optional(object.parent) : std::nullopt,
                        .kind = object.kind});
  }
  const size_t asked = objects_.size();
  state_.held_refusals_total += static_cast<int64_t>(count - asked);
  put_answers_.assign(asked, PutAnswer::kNotStored);
  absl::StatusOr<std::vector<store::Reservation>> reservations = pool_.Reserve(objects_, put_answers_);
  if (!reservations.ok()) return Refuse(reservations.status());
  reserve_reply_.places.assign(count, {.answer = PutAnswer::kRefusedFull, .offset = kNoOffset});
  for (size_t i = 0; i < asked; ++i) {
    const store::Reservation& reservation = (*reservations)[i];
    reserve_reply_.places[i] = {.answer = put_answers_[i],
                                .offset = reservation.valid() ? OffsetOf(reservation.memory()) : kNoOffset};
  }
  reserve_reply_.batch = holdings_.AddReservations(*std::move(reservations));
  return Answer(reserve_reply_);
}

DaemonSession::Next DaemonSession::Commit(std::span<const std::byte> body) {
  if (!DecodeBody(body, commit_)) return Malformed("commit");
  commit_reply_.answers.clear();
  for (const CommitObject& object : commit_.objects) {
    std::optional<store::Reservation> reservation = holdings_.TakeReservation(commit_.batch, object.ordinal);
    commit_reply_.answers.push_back(reservation.has_value() ? pool_.Commit(*std::move(reservation), object.digest)
                                                            : PutAnswer::kNotStored);
  }
  return Answer(commit_reply_);
}

DaemonSession::Next DaemonSession::Abandon(std::span<const std::byte> body) {
  AbandonRequest abandon;
  if (!DecodeBody(body, abandon)) return Malformed("abandon");
  holdings_.Abandon(abandon.batch);
  return Next::kGoOn;
}

DaemonSession::Next DaemonSession::Pin(std::span<const std::byte> body) {
  if (!DecodeBody(body, pin_)) return Malformed("pin");
  if (state_.draining) return Draining();
  const size_t count = pin_.keys.size();
  key_answers_.assign(count, KeyAnswer::kAbsent);
  absl::StatusOr<std::vector<store::PinnedObject>> pins = pool_.Pin(pin_.keys, key_answers_);
  if (!pins.ok()) return Refuse(pins.status());
  pin_reply_.places.assign(count, {});
  Bytes bytes;
  int64_t objects = 0;
  for (size_t i = 0; i < count; ++i) {
    store::PinnedObject& pin = (*pins)[i];
    pin_reply_.places[i].answer = key_answers_[i];
    if (!pin.valid()) continue;
    if (!holdings_.HasRoom(bytes + pin.memory().size, objects + 1)) {
      ++state_.held_refusals_total;
      pin_reply_.places[i].answer = KeyAnswer::kUnavailable;
      pin.Unpin();
      continue;
    }
    bytes += pin.memory().size;
    ++objects;
    pin_reply_.places[i] = {.answer = key_answers_[i],
                            .offset = OffsetOf(pin.memory()),
                            .size = static_cast<uint64_t>(pin.memory().size.value()),
                            .digest = pin.digest()};
  }
  pin_reply_.batch = holdings_.AddPins(*std::move(pins));
  return Answer(pin_reply_);
}

DaemonSession::Next DaemonSession::Unpin(std::span<const std::byte> body) {
  UnpinRequest unpin;
  if (!DecodeBody(body, unpin)) return Malformed("unpin");
  for (const uint32_t ordinal : unpin.corrupt) {
    if (const store::PinnedObject* pin = holdings_.FindPin(unpin.batch, ordinal)) pool_.RemoveCorrupt(*pin);
  }
  holdings_.Unpin(unpin.batch);
  return Next::kGoOn;
}

DaemonSession::Next DaemonSession::Remove(std::span<const std::byte> body) {
  RemoveRequest remove;
  if (!DecodeBody(body, remove)) return Malformed("remove");
  RemoveReply reply;
  reply.answers.assign(remove.keys.size(), KeyAnswer::kAbsent);
  if (absl::Status status = pool_.Remove(remove.keys, reply.answers); !status.ok()) return Refuse(status);
  return Answer(reply);
}

DaemonSession::Next DaemonSession::Clear(std::span<const std::byte> body) {
  ClearRequest clear;
  if (!DecodeBody(body, clear)) return Malformed("clear");
  const absl::StatusOr<int64_t> objects =
      pool_.Clear(clear.one_namespace != 0 ? std::optional(kv::NamespaceId(clear.name_space)) : std::nullopt);
  return objects.ok() ? Answer(ClearReply{.objects = *objects}) : Refuse(objects.status());
}

DaemonSession::Next DaemonSession::Stats(std::span<const std::byte> body) {
  StatsRequest request;
  if (!DecodeBody(body, request)) return Malformed("stats");
  return Answer(StatsReply{.stats = pool_.Stats()});
}

}  // namespace tenure::daemon
