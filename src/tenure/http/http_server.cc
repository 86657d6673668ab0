#include "tenure/http/http_server.h"

#include <httplib.h>

#include <deque>
#include <thread>
#include <utility>

#include "tenure/base/mutex.h"
#include "tenure/base/status.h"

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

httplib::Server::Handler Adapt(const std::function<HttpResponse(const HttpRequest&)>& handler) {
  return [handler](const httplib::Request& request, httplib::Response& response) {
    HttpResponse answer = handler({.authorization = request.get_header_value("Authorization"), .body = request.body});
    response.status = answer.status;
    response.set_content(std::move(answer.body), answer.content_type);
  };
}

}  // namespace

struct HttpServer::Impl {
  httplib::Server http;
  int port = 0;
  std::thread thread;
};

absl::StatusOr<std::unique_ptr<HttpServer>> HttpServer::Start(std::string_view what, const HttpServerOptions& options,
                                                              const std::vector<HttpRoute>& routes) {
  auto impl = std::make_unique<Impl>();
  httplib::Server& http = impl->http;
  http.new_task_queue = [threads = options.threads, waiting_max = options.connections_waiting_max] {
    return new BoundedThreads(threads, waiting_max);
  };
  http.set_payload_max_length(options.body_bytes_max);
  http.set_read_timeout(absl::ToChronoMicroseconds(options.timeout));
  http.set_write_timeout(absl::ToChronoMicroseconds(options.timeout));
  http.set_keep_alive_max_count(1);  // A reader that stays must not hold one of few threads.
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
