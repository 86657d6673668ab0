// Bootstrap server and client against each other over loopback, and against servers that are none.
#include "tenure/handoff/bootstrap_server.h"

#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tenure/base/status.h"
#include "tenure/handoff/bootstrap_client.h"

namespace tenure::handoff {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::unique_ptr<BootstrapServer> StartServer(BootstrapServerOptions options = {}) {
  options.address.port = 0;
  auto server = BootstrapServer::Start(options);
  EXPECT_TRUE(server.ok()) << server.status();
  return std::move(server).value();
}

std::string Url(int port) { return "http://127.0.0.1:" + std::to_string(port); }

// The pauses it makes are kept, and take no time.
struct TestClient {
  explicit TestClient(int port, const BootstrapClientOptions& options = {})
      : client(BootstrapClient::Create(Url(port), options, [this](absl::Duration time) {
                 pauses.push_back(time);
               }).value()) {}
  BootstrapClient* operator->() { return client.get(); }

  std::vector<absl::Duration> pauses;
  std::unique_ptr<BootstrapClient> client;
};

http::HttpClient Http(const BootstrapServer& server) {
  return http::HttpClient({.host = "127.0.0.1", .port = server.port()}, {});
}

pd::WorkerRegistration Worker(int64_t tp_rank, const std::string& address) {
  return {.engine_id = "engine", .dp_rank = 0, .tp_rank = tp_rank, .pp_rank = 0, .address = address};
}

TEST(BootstrapServer, WorkersThatRegisterAreFound) {
  const auto server = StartServer();
  TestClient client(server->port());
  EXPECT_TRUE(client->Query()->empty());
  ASSERT_TRUE(client->Register(Worker(0, "tcp://10.0.0.1:1")).ok());
  ASSERT_TRUE(client->Register(Worker(1, "tcp://10.0.0.1:2")).ok());
  ASSERT_TRUE(client->Register(Worker(1, "tcp://10.0.0.1:2")).ok());  // A retry.
  const auto engines = client->Query();
  ASSERT_TRUE(engines.ok()) << engines.status();
  ASSERT_EQ(engines->size(), 1u);
  EXPECT_EQ(engines->at(0).engine_id, "engine");
  EXPECT_EQ(engines->at(0).addresses.at(1).at(0), "tcp://10.0.0.1:2");
}

TEST(BootstrapServer, RefusalsHaveStocksStatusAndTheReason) {
  const auto server = StartServer();
  TestClient client(server->port());
  ASSERT_TRUE(client->Register(Worker(0, "tcp://10.0.0.1:1")).ok());
  const auto conflict = Http(*server).Post("/register", EncodeRegistration(Worker(0, "tcp://10.0.0.1:9")));
  EXPECT_EQ(conflict->status, 400);
  EXPECT_THAT(conflict->body, HasSubstr(R"({"detail":"Worker with dp_rank=0, tp_rank=0, pp_rank=0 is already)"));
  const auto bad = Http(*server).Post("/register", "{}");
  EXPECT_EQ(bad->status, 422);
  EXPECT_THAT(bad->body, HasSubstr("engine_id is missing"));
  // The client tells the same, and does not try again.
  const absl::Status status = client->Register(Worker(0, "tcp://10.0.0.1:9"));
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(Message(status)), HasSubstr("already registered at tcp://10.0.0.1:1"));
  EXPECT_TRUE(client.pauses.empty());
}

TEST(BootstrapServer, RegistrationNeedsTheTokenAndQueriesDoNot) {
  const auto server = StartServer({.token = "secret"});
  TestClient none(server->port());
  TestClient wrong(server->port(), {.token = "secreT"});
  TestClient right(server->port(), {.token = "secret"});
  EXPECT_THAT(std::string(Message(none->Register(Worker(0, "tcp://a:1")))), HasSubstr("status 401"));
  EXPECT_THAT(std::string(Message(wrong->Register(Worker(0, "tcp://a:1")))), HasSubstr("status 401"));
  EXPECT_TRUE(none->Query()->empty());
  EXPECT_TRUE(right->Register(Worker(0, "tcp://a:1")).ok());
  EXPECT_EQ(none->Query()->size(), 1u);
}

TEST(BootstrapServer, AnEmptyTokenIsRefusedAtStart) {
  EXPECT_TRUE(absl::IsInvalidArgument(BootstrapServer::Start({.token = ""}).status()));
}

TEST(BootstrapServer, HealthAndStatus) {
  const auto plain = StartServer();
  EXPECT_EQ(Http(*plain).Get("/health")->body, R"({"status":"ok"})");
  EXPECT_EQ(Http(*plain).Get("/status")->status, 404);
  const auto telling = StartServer({.status = [] { return std::string(R"({"lease_mismatches":[]})"); }});
  EXPECT_EQ(Http(*telling).Get("/status")->body, R"({"lease_mismatches":[]})");
}

TEST(BootstrapServer, RegistrationsOfManyThreadsAllCount) {
  constexpr int kThreads = 8;
  constexpr int kEach = 25;
  const auto server = StartServer();
  std::vector<std::thread> workers;
  for (int thread = 0; thread < kThreads; ++thread) {
    workers.emplace_back([&, thread] {
      TestClient client(server->port());
      for (int i = 0; i < kEach; ++i) {
        EXPECT_TRUE(client->Register(Worker(thread * kEach + i, "tcp://10.0.0.1:1")).ok());
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
  TestClient client(server->port());
  EXPECT_EQ(client->Query()->at(0).addresses.size(), size_t{kThreads} * kEach);
}

TEST(BootstrapClient, OnlyAServerThatIsNotThereIsTriedAgain) {
  const int port = StartServer()->port();  // Nobody listens any more.
  TestClient client(port);
  const absl::Status status = client->Register(Worker(0, "tcp://a:1"));
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(Message(status)), HasSubstr(Url(port)));
  EXPECT_THAT(client.pauses, ElementsAre(absl::Seconds(1), absl::Seconds(2), absl::Seconds(4), absl::Seconds(8),
                                         absl::Seconds(10), absl::Seconds(10), absl::Seconds(10), absl::Seconds(10)));
  TestClient asking(port);
  EXPECT_TRUE(absl::IsUnavailable(asking->Query().status()));
  EXPECT_THAT(asking.pauses, ElementsAre(absl::Milliseconds(100), absl::Milliseconds(100)));
}

TEST(BootstrapClient, AServerThatComesUpInTimeIsFound) {
  const int port = StartServer()->port();
  std::unique_ptr<BootstrapServer> server;
  const auto client = BootstrapClient::Create(Url(port), {}, [&](absl::Duration) {
    server = BootstrapServer::Start({.address = {.host = "127.0.0.1", .port = port}}).value();
  });
  EXPECT_TRUE((*client)->Register(Worker(0, "tcp://a:1")).ok());
}

TEST(BootstrapClient, AnAnswerThatIsNoneIsRefused) {
  const auto answer = [](const http::HttpRequest&) { return http::HttpResponse{.body = "[]"}; };
  const auto server = http::HttpServer::Start("test", {.address = {.host = "127.0.0.1"}},
                                              {{http::HttpRoute::Method::kGet, "/query", answer}});
  TestClient client((*server)->port());
  const auto engines = client->Query();
  EXPECT_TRUE(absl::IsInvalidArgument(engines.status())) << engines.status();
  EXPECT_THAT(std::string(Message(engines.status())), HasSubstr(Url((*server)->port())));
}

TEST(BootstrapClient, CancelEndsThePauses) {
  const int port = StartServer()->port();
  auto client = BootstrapClient::Create(Url(port), {.register_pause = absl::Hours(1)}).value();
  std::thread registering([&] { EXPECT_TRUE(absl::IsUnavailable(client->Register(Worker(0, "tcp://a:1")))); });
  client->Cancel();
  registering.join();
  EXPECT_TRUE(absl::IsUnavailable(client->Query().status()));
}

TEST(BootstrapClient, BadOptionsAreNamed) {
  EXPECT_THAT(std::string(Message(BootstrapClient::Create("10.0.0.1:8998", {}).status())),
              HasSubstr("http://HOST:PORT"));
  EXPECT_THAT(std::string(Message(BootstrapClient::Create("http://a:1", {.register_attempts = 0}).status())),
              HasSubstr("register_attempts is 0"));
  EXPECT_THAT(std::string(Message(BootstrapClient::Create("http://a:1", {.query_attempts = 0}).status())),
              HasSubstr("query_attempts is 0"));
}

}  // namespace
}  // namespace tenure::handoff
