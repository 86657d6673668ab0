#include "tenure/http/response_reader.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tenure/base/status.h"

namespace tenure::http {
namespace {

using ::testing::HasSubstr;

// The answer in `bytes` when they come in pieces of `piece` bytes and then the connection ends.
absl::StatusOr<HttpResponse> Read(std::string_view bytes, size_t piece, size_t body_bytes_max = 1000) {
  ResponseReader reader(body_bytes_max);
  for (size_t at = 0; at < bytes.size(); at += piece) {
    const absl::StatusOr<bool> whole = reader.Feed(bytes.substr(at, piece));
    if (!whole.ok()) return whole.status();
    if (*whole) return reader.Take();
  }
  if (reader.FeedEnd()) return reader.Take();
  return Unavailable("cut");
}

void ExpectAnswer(std::string_view bytes, int status, std::string_view body) {
  for (const size_t piece : {size_t{1}, size_t{7}, bytes.size()}) {
    const auto answer = Read(bytes, piece);
    ASSERT_TRUE(answer.ok()) << answer.status() << " in pieces of " << piece;
    EXPECT_EQ(answer->status, status);
    EXPECT_EQ(answer->body, body);
  }
}

TEST(ResponseReader, BodiesEndWithTheirLengthTheirLastChunkOrTheConnection) {
  ExpectAnswer("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody", 200, "body");
  ExpectAnswer("HTTP/1.1 404 Not Found\r\ncontent-length:0\r\n\r\n", 404, "");
  ExpectAnswer("HTTP/1.0 200 OK\r\n\r\nto the end", 200, "to the end");
  ExpectAnswer("HTTP/1.1 200\nContent-Length: 1\n\nx", 200, "x");
  ExpectAnswer(
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n4;x=y\r\nbody\r\nA \r\n0123456789\r\n0\r\nT: v\r\n\r\n",
      200, "body0123456789");
  ExpectAnswer("HTTP/1.1 204 No Content\r\n\r\n", 204, "");
  ExpectAnswer("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx", 200, "x");
}

TEST(ResponseReader, ContentTypeIsTold) {
  EXPECT_EQ(Read("HTTP/1.1 200 OK\r\ncontent-TYPE: text/plain \r\nContent-Length: 0\r\n\r\n", 1)->content_type,
            "text/plain");
}

TEST(ResponseReader, AnswerThatIsCutIsNotWhole) {
  const std::string_view whole = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n";
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_TRUE(absl::IsUnavailable(Read(whole.substr(0, size), 5).status())) << size;
  }
}

TEST(ResponseReader, BytesThatAreNoHttpAreNamed) {
  for (const std::string_view bytes :
       {"SSH-2.0-OpenSSH\r\n", "HTTP/2 200\r\n", "HTTP/1.1 20 OK\r\n", "HTTP/1.1 2000\r\n", "HTTP/1.1 099 x\r\n",
        "HTTP/1.1 -20 x\r\n", "\r\n", "HTTP/1.1 200 OK\r\nno field\r\n", "HTTP/1.1 200 OK\r\n: x\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nxx\r\n"}) {
    const absl::Status status = Read(bytes, bytes.size()).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << bytes << status;
    EXPECT_THAT(std::string(Message(status)), HasSubstr("no HTTP/1.1 at \""));
  }
}

TEST(ResponseReader, HeadAndBodyHaveAMaximum) {
  const std::string long_line(ResponseReader::kHeadBytesMax, 'A');
  EXPECT_TRUE(absl::IsResourceExhausted(Read("HTTP/1.1 200 " + long_line, 4096).status()));
  EXPECT_TRUE(absl::IsResourceExhausted(Read("HTTP/1.1 200 OK\r\nX: " + long_line, 4096).status()));
  std::string many = "HTTP/1.1 200 OK\r\n";
  for (int i = 0; i < 20'000; ++i) many += "X: y\r\n";
  EXPECT_TRUE(absl::IsResourceExhausted(Read(many, 4096).status()));
  std::string interim;
  for (int i = 0; i < 10'000; ++i) interim += "HTTP/1.1 100 Continue\r\n\r\n";
  EXPECT_TRUE(absl::IsResourceExhausted(Read(interim, 4096).status()));
  for (const std::string head : {"Content-Length: 11\r\n\r\n", "\r\n", "Transfer-Encoding: chunked\r\n\r\nB\r\n"}) {
    const std::string bytes = "HTTP/1.1 200 OK\r\n" + head + "0123456789x";
    EXPECT_TRUE(absl::IsResourceExhausted(Read(bytes, 3, 10).status())) << head;
  }
  for (const std::string head : {"Content-Length: 11\r\n\r\n", "\r\n"}) {
    EXPECT_TRUE(Read("HTTP/1.1 200 OK\r\n" + head + "0123456789x", 3, 11).ok()) << head;
  }
}

TEST(ResponseReader, BodyOfManySmallChunksIsNoLongHead) {
  std::string bytes = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (int i = 0; i < 30'000; ++i) bytes += "1\r\nx\r\n";
  const auto answer = Read(bytes + "0\r\n\r\n", 4096, 30'000);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->body.size(), 30'000u);
}

}  // namespace
}  // namespace tenure::http
