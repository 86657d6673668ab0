// The client against servers that misbehave, over loopback.
#include "tenure/http/http_client.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tenure/base/check.h"
#include "tenure/base/status.h"

namespace tenure::http {
namespace {

using ::testing::HasSubstr;

// Takes one connection, waits for a request's end and sends these bytes, again and again where asked to.
class RawServer {
 public:
  RawServer(std::string answer, bool repeats) : listener_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in any = {.sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
    socklen_t size = sizeof any;
    TENURE_CHECK(bind(listener_, reinterpret_cast<sockaddr*>(&any), size) == 0 && listen(listener_, 8) == 0);
    TENURE_CHECK(getsockname(listener_, reinterpret_cast<sockaddr*>(&any), &size) == 0);
    port_ = ntohs(any.sin_port);
    thread_ = std::thread([this, answer = std::move(answer), repeats] { Serve(answer, repeats); });
  }
  ~RawServer() {
    stop_.store(true);
    shutdown(listener_, SHUT_RDWR);
    close(listener_);
    thread_.join();
  }
  HttpClient Client(const HttpClientOptions& options = {}) const {
    return HttpClient({.host = "127.0.0.1", .port = port_}, options);
  }

 private:
  void Serve(const std::string& answer, bool repeats) {
    const int connection = accept(listener_, nullptr, nullptr);
    if (connection < 0) return;
    std::string request(4096, '\0');
    bool open = recv(connection, request.data(), request.size(), 0) > 0;
    do {
      open = open && send(connection, answer.data(), answer.size(), MSG_NOSIGNAL) > 0;
    } while (open && repeats && !stop_.load());
    close(connection);
  }

  int listener_;
  int port_ = 0;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

TEST(HttpClient, StatusLineOfManyMegabytesIsAnError) {
  const RawServer server("HTTP/1.1 200 " + std::string(20'000'000, 'A') + "\r\n\r\n", false);
  const absl::Status status = server.Client().Get("/query").status();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(std::string(Message(status)), HasSubstr("127.0.0.1:"));
}

TEST(HttpClient, HeadThatNeverEndsIsAnError) {
  const RawServer server("HTTP/1.1 100 Continue\r\n\r\n", true);
  EXPECT_TRUE(absl::IsResourceExhausted(server.Client().Get("/query").status()));
}

TEST(HttpClient, AnotherProtocolIsNamed) {
  const RawServer server("SSH-2.0-OpenSSH_9.2\r\n", false);
  const absl::Status status = server.Client().Get("/query").status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(std::string(Message(status)), HasSubstr("SSH-2.0-OpenSSH_9.2"));
}

TEST(HttpClient, ServerThatIsSilentIsUnavailableAfterTheTime) {
  const RawServer server("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n1", false);
  EXPECT_TRUE(absl::IsUnavailable(server.Client().Get("/query").status()));  // Cut.
  const RawServer silent("", false);
  EXPECT_TRUE(absl::IsUnavailable(silent.Client({.timeout = absl::Milliseconds(50)}).Get("/query").status()));
}

TEST(HttpClient, AnswerThatDripsForEverIsCutAtTheTime) {
  // Each byte comes in time, the answer never ends, and its maximum is far.
  const RawServer endless("HTTP/1.1 200 OK\r\n\r\n", true);
  const absl::Status status =
      endless.Client({.timeout = absl::Milliseconds(100), .body_bytes_max = SIZE_MAX}).Get("/query").status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(Message(status)), HasSubstr("not in time"));
}

TEST(HttpClient, CancelEndsAWaitAndWhatComesLater) {
  // Nothing accepts, so that the request gets no answer.
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in any = {.sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
  socklen_t size = sizeof any;
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&any), size), 0);
  ASSERT_EQ(listen(listener, 8), 0);
  ASSERT_EQ(getsockname(listener, reinterpret_cast<sockaddr*>(&any), &size), 0);
  HttpClient client({.host = "127.0.0.1", .port = ntohs(any.sin_port)}, {.timeout = absl::Hours(1)});
  std::thread asking([&] { EXPECT_TRUE(absl::IsUnavailable(client.Get("/query").status())); });
  client.Cancel();
  asking.join();
  EXPECT_THAT(std::string(Message(client.Get("/query").status())), HasSubstr("cancelled"));
  close(listener);
}

TEST(HttpClient, NameWithoutAnAddressIsUnavailable) {
  HttpClient client({.host = "no-such-host.invalid", .port = 1}, {});
  EXPECT_TRUE(absl::IsUnavailable(client.Get("/").status()));
}

}  // namespace
}  // namespace tenure::http
