// Server and client against each other over loopback.
#include "tenure/http/http_server.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tenure/base/status.h"
#include "tenure/http/http_client.h"

namespace tenure::http {
namespace {

using ::testing::HasSubstr;

std::vector<HttpRoute> Routes() {
  const auto echo = [](const HttpRequest& request) {
    return HttpResponse{.status = 201, .content_type = "text/plain", .body = request.authorization + request.body};
  };
  const auto big = [](const HttpRequest&) { return HttpResponse{.body = std::string(1'000'000, 'x')}; };
  return {{HttpRoute::Method::kPost, "/echo", echo}, {HttpRoute::Method::kGet, "/big", big}};
}

std::unique_ptr<HttpServer> StartServer(HttpServerOptions options = {}) {
  options.address = {.host = "127.0.0.1", .port = 0};
  auto server = HttpServer::Start("test", options, Routes());
  EXPECT_TRUE(server.ok()) << server.status();
  return std::move(server).value();
}

HttpClient Client(const HttpServer& server, const HttpClientOptions& options = {}) {
  return HttpClient({.host = "127.0.0.1", .port = server.port()}, options);
}

TEST(HttpServer, AnswersWithWhatTheHandlerGives) {
  const auto server = StartServer();
  const auto answer = Client(*server, {.authorization = "Bearer t"}).Post("/echo", "body");
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->status, 201);
  EXPECT_EQ(answer->content_type, "text/plain");
  EXPECT_EQ(answer->body, "Bearer tbody");
}

TEST(HttpServer, OtherPathsAre404AndLongBodies413) {
  const auto server = StartServer({.body_bytes_max = 100});
  EXPECT_EQ(Client(*server).Get("/elsewhere")->status, 404);
  EXPECT_EQ(Client(*server).Get("/echo")->status, 404);  // Not with this method.
  EXPECT_EQ(Client(*server).Post("/echo", std::string(101, 'x'))->status, 413);
  EXPECT_EQ(Client(*server).Post("/echo", std::string(100, 'x'))->status, 201);
}

TEST(HttpServer, MoreConnectionsThanThreadsAndPlacesAreAllAnswered) {
  const auto server = StartServer({.threads = 1, .connections_waiting_max = 1});
  std::atomic<int> answered{0};
  std::vector<std::thread> callers;
  for (int i = 0; i < 8; ++i) {
    callers.emplace_back([&] {
      const auto answer = Client(*server).Post("/echo", "x");
      if (answer.ok() && answer->status == 201) ++answered;
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(answered.load(), 8);
}

// Sends a request that never ends, as long as somebody listens.
class EndlessClient {
 public:
  EndlessClient(int port, std::string piece) : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<uint16_t>(port));
    EXPECT_EQ(connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    thread_ = std::thread([this, piece = std::move(piece)] {
      std::string next = "POST /echo HTTP/1.1\r\n";
      while (send(socket_, next.data(), next.size(), MSG_NOSIGNAL) >= 0) {
        next = piece;
        pollfd closed = {.fd = socket_, .events = POLLIN, .revents = 0};
        poll(&closed, 1, piece.size() > 1 ? 0 : 10);
        if (closed.revents != 0) break;
      }
    });
  }
  ~EndlessClient() {
    Wait();
    close(socket_);
  }
  // Until its connection is closed.
  void Wait() {
    if (thread_.joinable()) thread_.join();
  }

 private:
  const int socket_;
  std::thread thread_;
};

TEST(HttpServer, ClientsThatSendAByteNowAndThenKeepNobodyOut) {
  const auto server = StartServer({.threads = 4, .timeout = absl::Milliseconds(300)});
  std::vector<std::unique_ptr<EndlessClient>> slow;
  for (int i = 0; i < 4; ++i) slow.push_back(std::make_unique<EndlessClient>(server->port(), "x"));
  const auto answer = Client(*server).Post("/echo", "body");
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->status, 201);
}

TEST(HttpServer, HeaderFieldsWithoutEndLoseTheirConnection) {
  const auto server = StartServer({.timeout = absl::Hours(1)});
  EndlessClient(server->port(), "a: b\r\n").Wait();
  EXPECT_EQ(Client(*server).Post("/echo", "body")->status, 201);
}

TEST(HttpServer, APortIsListenedOnOnce) {
  const auto first = StartServer();
  const auto second =
      HttpServer::Start("--bootstrap", {.address = {.host = "127.0.0.1", .port = first->port()}}, Routes());
  EXPECT_TRUE(absl::IsInvalidArgument(second.status()));
  EXPECT_THAT(std::string(Message(second.status())), HasSubstr("--bootstrap 127.0.0.1:"));
}

TEST(HttpServer, AddressOfAnotherMachineCannotBeListenedOn) {
  const auto server = HttpServer::Start("--metrics", {.address = {.host = "192.0.2.1", .port = 9108}}, {});
  EXPECT_TRUE(absl::IsInvalidArgument(server.status()));
  EXPECT_THAT(std::string(Message(server.status())), HasSubstr("192.0.2.1:9108"));
}

TEST(HttpClient, ServerThatIsGoneIsUnavailable) {
  int port = 0;
  { port = StartServer()->port(); }
  const auto answer = HttpClient({.host = "127.0.0.1", .port = port}, {}).Get("/big");
  EXPECT_TRUE(absl::IsUnavailable(answer.status())) << answer.status();
  EXPECT_THAT(std::string(Message(answer.status())), HasSubstr("127.0.0.1:" + std::to_string(port)));
}

TEST(HttpClient, AnswerBeyondTheMaximumIsRefused) {
  const auto server = StartServer();
  EXPECT_EQ(Client(*server).Get("/big")->body.size(), 1'000'000u);
  const auto answer = Client(*server, {.body_bytes_max = 999'999}).Get("/big");
  EXPECT_TRUE(absl::IsResourceExhausted(answer.status())) << answer.status();
}

}  // namespace
}  // namespace tenure::http
