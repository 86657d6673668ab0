#include "tenure/http/http_server.h"

#include <httplib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <thread>
#include <utility>

#include "tenure/base/clock.h"
#include "tenure/base/mutex.h"
#include "tenure/base/status.h"
#include "tenure/http/poll_until.h"

namespace tenure::http {
namespace {

// The library's own pool queues connections without end, each with a descriptor of this process.
class BoundedThreads final : public httplib::TaskQueue {
 public:
  BoundedThreads(size_t threads, size_t waiting_max) : waiting_max_(waiting_max) {
    for (size_t i = 0; i < threads; ++i) threads_.emplace_back([this] { Run(); });
  }

  // The library's one accepting thread waits here while the queue is full.
  void enqueue(std::function<void()> task) override {
    MutexLock lock(mutex_);
    while (waiting_.size() >= waiting_max_) room_.Wait(mutex_);
    waiting_.push_back(std::move(task));
    ready_.SignalOne();
  }

  // What waits is still served: each task closes its connection.
  void shutdown() override {
    {
      MutexLock lock(mutex_);
      stopping_ = true;
      ready_.SignalAll();
    }
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  void Run() {
    MutexLock lock(mutex_);
    while (true) {
      while (waiting_.empty() && !stopping_) ready_.Wait(mutex_);
      if (waiting_.empty()) return;
      std::function<void()> task = std::move(waiting_.front());
      waiting_.pop_front();
      room_.SignalOne();
      mutex_.Unlock();
      task();
      mutex_.Lock();
    }
  }

  const size_t waiting_max_;
  Mutex mutex_;
  CondVar ready_;
  CondVar room_;
  std::deque<std::function<void()>> waiting_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

// A connection that has a time and a size for all that its peer sends, and the same time again for all that it takes.
// The library's own has a time for each read only, in which a peer that sends a byte now and then keeps a thread for
// ever, and reads header lines without end.
class BoundedStream final : public httplib::Stream {
 public:
  BoundedStream(socket_t socket, absl::Duration timeout, size_t bytes_max)
      : socket_(socket), timeout_(timeout), bytes_left_(bytes_max), read_until_(clock_.Now() + timeout) {}

  bool is_readable() const override { return at_ < size_ || Wait(POLLIN, clock_.Now()); }
  bool is_writable() const override { return Wait(POLLOUT, clock_.Now()); }

  ssize_t read(char* bytes, size_t size) override {
    if (at_ == size_) {
      const ssize_t filled = Fill();
      if (filled <= 0) return filled;
    }
    const size_t taken = std::min(size, size_ - at_);
    std::memcpy(bytes, buffer_.data() + at_, taken);
    at_ += taken;
    return static_cast<ssize_t>(taken);
  }

  ssize_t write(const char* bytes, size_t size) override {
    if (write_until_ == MonotonicTime::Max()) write_until_ = clock_.Now() + timeout_;
    while (Wait(POLLOUT, write_until_)) {
      const ssize_t sent = send(socket_, bytes, size, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (sent >= 0 || !ForNow(errno)) return sent;
    }
    return -1;
  }

  // Of no use here.
  void get_remote_ip_and_port(std::string&, int&) const override {}
  void get_local_ip_and_port(std::string&, int&) const override {}
  socket_t socket() const override { return socket_; }

 private:
  static bool ForNow(int error) { return error == EINTR || error == EAGAIN; }

  ssize_t Fill() {
    while (bytes_left_ > 0 && Wait(POLLIN, read_until_)) {
      const ssize_t read = recv(socket_, buffer_.data(), std::min(buffer_.size(), bytes_left_), MSG_DONTWAIT);
      if (read < 0 && ForNow(errno)) continue;
      at_ = 0;
      size_ = read > 0 ? static_cast<size_t>(read) : 0;
      bytes_left_ -= size_;
      return read;
    }
    return -1;
  }

  // Whether the socket is ready, by `until` at the latest.
  bool Wait(short events, MonotonicTime until) const {
    pollfd watched = {.fd = socket_, .events = events, .revents = 0};
    return PollUntil({&watched, 1}, clock_, until) > 0;
  }

  const MonotonicClock clock_;
  const socket_t socket_;
  const absl::Duration timeout_;
  size_t bytes_left_;
  const MonotonicTime read_until_;
  MonotonicTime write_until_ = MonotonicTime::Max();  // Max: nothing is written yet.
  std::array<char, 4096> buffer_;                     // What is read from at_ to size_.
  size_t at_ = 0;
  size_t size_ = 0;
};

// One request a connection: a reader that stays must not hold one of few threads.
class BoundedServer final : public httplib::Server {
 public:
  explicit BoundedServer(const HttpServerOptions& options)
      : timeout_(options.timeout), bytes_max_(HttpServer::kHeadBytesMax + 2 * options.body_bytes_max) {}

 private:
  bool process_and_close_socket(socket_t socket) override {
    BoundedStream stream(socket, timeout_, bytes_max_);
    bool closed = false;
    const bool answered = process_request(stream, /*close_connection=*/true, closed, nullptr);
    shutdown(socket, SHUT_RDWR);
    close(socket);
    return answered;
  }

  const absl::Duration timeout_;
  const size_t bytes_max_;
};

httplib::Server::Handler Adapt(const std::function<HttpResponse(const HttpRequest&)>& handler) {
  return [handler](const httplib::Request& request, httplib::Response& response) {
    HttpResponse answer = handler({.authorization = request.get_header_value("Authorization"), .body = request.body});
    response.status = answer.status;
    response.set_content(std::move(answer.body), answer.content_type);
  };
}

}  // namespace

struct HttpServer::Impl {
  explicit Impl(const HttpServerOptions& options) : http(options) {}

  BoundedServer http;
  int port = 0;
  std::thread thread;
};

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(std::string_view what, const HttpServerOptions& options,
                                                              const std::vector<HttpRoute>& routes) {
  auto impl = std::make_unique<Impl>(options);
  httplib::Server& http = impl->http;
  http.new_task_queue = [threads = options.threads, waiting_max = options.connections_waiting_max] {
    return new BoundedThreads(threads, waiting_max);
  };
  http.set_payload_max_length(options.body_bytes_max);
  for (const HttpRoute& route : routes) {
    if (route.method == HttpRoute::Method::kGet) {
      http.Get(route.path, Adapt(route.handler));
    } else {
      http.Post(route.path, Adapt(route.handler));
    }
  }
  // Without SO_REUSEPORT, which the library sets: two servers on one port would share the requests.
  http.set_socket_options([](socket_t socket) {
    const int yes = 1;
    setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  });
  const HttpAddress& address = options.address;
  const bool bound = address.port == 0 ? (impl->port = http.bind_to_any_port(address.host)) > 0
                                       : http.bind_to_port(address.host, impl->port = address.port);
  if (!bound) {
    return InvalidArgument("{} {}:{}: this address cannot be listened on; give one of this machine and a free port",
                           what, address.host, address.port);
  }
  impl->thread = std::thread([&http] { http.listen_after_bind(); });
  // A stop before that would be lost.
  while (!http.is_running()) std::this_thread::yield();
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

HttpServer::~HttpServer() {
  impl_->http.stop();
  impl_->thread.join();
}

int HttpServer::port() const { return impl_->port; }

}  // namespace tenure::http
