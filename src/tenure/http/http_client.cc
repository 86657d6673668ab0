#include "tenure/http/http_client.h"

#include <fcntl.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "tenure/base/clock.h"
#include "tenure/base/status.h"
#include "tenure/base/text.h"
#include "tenure/base/wake_event.h"
#include "tenure/http/poll_until.h"
#include "tenure/http/response_reader.h"

namespace tenure::http {
namespace {

constexpr size_t kHostShownMax = 200;

class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

absl::StatusOr<Addresses> LookUp(const HttpAddress& address) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found);
  if (error == 0) return Addresses(found, &freeaddrinfo);
  return Unavailable("{}", gai_strerror(error));
}

std::string PlaceOf(const HttpAddress& address) {
  const bool ipv6 = address.host.find(':') != std::string::npos;
  const std::string host = OneLine(address.host, kHostShownMax);
  return fmt::format(fmt::runtime(ipv6 ? "[{}]:{}" : "{}:{}"), host, address.port);
}

}  // namespace

struct HttpClient::Impl {
  Impl(const HttpAddress& given, const HttpClientOptions& given_options)
      : address(given), options(given_options), place(PlaceOf(given)) {}

  absl::StatusOr<HttpResponse> Ask(std::string_view method, std::string_view path, std::string_view body);
  absl::StatusOr<HttpResponse> Exchange(std::string_view request);
  absl::StatusOr<Socket> Connect() const;
  absl::StatusOr<Socket> ConnectTo(const addrinfo& one, MonotonicTime end) const;
  // OK once the descriptor is ready for `events`.
  absl::Status Wait(int fd, short events, MonotonicTime end) const;

  const HttpAddress address;
  const HttpClientOptions options;
  const std::string place;
  const MonotonicClock clock;
  const WakeEvent cancelled;  // Never cleared.
};

absl::Status HttpClient::Impl::Wait(int fd, short events, MonotonicTime end) const {
  std::array<pollfd, 2> watched = {
      {{.fd = fd, .events = events, .revents = 0}, {.fd = cancelled.fd(), .events = POLLIN, .revents = 0}}};
  const int ready = PollUntil(watched, clock, end);
  if (watched[1].revents != 0) return Unavailable("cancelled");
  if (ready > 0) return absl::OkStatus();
  if (ready < 0) return Unavailable("{}", std::strerror(errno));
  return Unavailable("not in time");
}

absl::StatusOr<Socket> HttpClient::Impl::ConnectTo(const addrinfo& one, MonotonicTime end) const {
  Socket made(socket(one.ai_family, one.ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, one.ai_protocol));
  if (made.fd() < 0) return Unavailable("{}", std::strerror(errno));
  if (connect(made.fd(), one.ai_addr, one.ai_addrlen) != 0 && errno != EINPROGRESS && errno != EINTR) {
    return Unavailable("{}", std::strerror(errno));
  }
  TENURE_RETURN_IF_ERROR(Wait(made.fd(), POLLOUT, end));
  int error = 0;
  socklen_t size = sizeof error;
  if (getsockopt(made.fd(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) error = errno;
  if (error != 0) return Unavailable("{}", std::strerror(error));
  return made;
}

absl::StatusOr<Socket> HttpClient::Impl::Connect() const {
  if (!cancelled.valid()) return Unavailable("no descriptor is left; raise the limit of open files");
  TENURE_ASSIGN_OR_RETURN(const Addresses found, LookUp(address));
  const MonotonicTime end = clock.Now() + options.timeout;
  absl::StatusOr<Socket> connected = Unavailable("the name has no address");
  for (const addrinfo* one = found.get(); one != nullptr && !connected.ok(); one = one->ai_next) {
    absl::StatusOr<Socket> next = ConnectTo(*one, end);
    if (next.ok()) return next;
    connected = next.status();
  }
  return connected.status();
}

absl::StatusOr<HttpResponse> HttpClient::Impl::Exchange(std::string_view request) {
  TENURE_ASSIGN_OR_RETURN(const Socket connection, Connect());
  const MonotonicTime end = clock.Now() + options.timeout;
  while (!request.empty()) {
    TENURE_RETURN_IF_ERROR(Wait(connection.fd(), POLLOUT, end));
    const ssize_t sent = send(connection.fd(), request.data(), request.size(), MSG_NOSIGNAL);
    if (sent >= 0) request.remove_prefix(static_cast<size_t>(sent));
    // A server may refuse a body before it has all of it: its answer is there to be read.
    if (sent < 0 && errno != EAGAIN && errno != EINTR) break;
  }
  ResponseReader reader(options.body_bytes_max);
  std::array<char, 16 << 10> bytes;
  while (true) {
    TENURE_RETURN_IF_ERROR(Wait(connection.fd(), POLLIN, end));
    const ssize_t size = recv(connection.fd(), bytes.data(), bytes.size(), 0);
    if (size < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (size < 0) return Unavailable("{}", std::strerror(errno));
    if (size == 0 && !reader.FeedEnd()) return Unavailable("the connection was closed before the answer was whole");
    if (size == 0) return reader.Take();
    TENURE_ASSIGN_OR_RETURN(const bool whole, reader.Feed({bytes.data(), static_cast<size_t>(size)}));
    if (whole) return reader.Take();
  }
}

absl::StatusOr<HttpResponse> HttpClient::Impl::Ask(std::string_view method, std::string_view path,
                                                   std::string_view body) {
  std::string request = fmt::format("{} {} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n", method, path, place);
  if (!options.authorization.empty()) request += fmt::format("Authorization: {}\r\n", options.authorization);
  if (method == "POST") {
    request += fmt::format("Content-Type: application/json\r\nContent-Length: {}\r\n", body.size());
  }
  request += "\r\n";
  request += body;
  absl::StatusOr<HttpResponse> answer = Exchange(request);
  if (answer.ok()) return answer;
  return absl::Status(answer.status().code(),
                      fmt::format("no answer of {} to {} {} ({}); check that the server runs and is reachable", place,
                                  method, path, Message(answer.status())));
}

HttpClient::HttpClient(const HttpAddress& address, const HttpClientOptions& options)
    : impl_(std::make_unique<Impl>(address, options)) {}

HttpClient::~HttpClient() = default;

absl::StatusOr<HttpResponse> HttpClient::Get(std::string_view path) { return impl_->Ask("GET", path, {}); }

absl::StatusOr<HttpResponse> HttpClient::Post(std::string_view path, std::string_view json) {
  return impl_->Ask("POST", path, json);
}

void HttpClient::Cancel() { impl_->cancelled.Wake(); }

}  // namespace tenure::http
