#include "tenure/sim/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <memory>
#include <string>

#include "tenure/base/status.h"

namespace tenure::sim {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr Tokens kBlock(512);

std::string Line(std::string_view timestamp, std::string_view input, std::string_view output, std::string_view ids) {
  return fmt::format(R"({{"timestamp": {}, "input_length": {}, "output_length": {}, "hash_ids": {}}})", timestamp,
                     input, output, ids);
}

std::string ErrorOf(std::string_view line) {
  TraceRequest request;
  const absl::Status status = ParseTraceLine(line, kBlock, request);
  EXPECT_FALSE(status.ok()) << line;
  return std::string(Message(status));
}

// Everything the reader makes of a text: the requests it gave and the error that ended it, if any.
struct ReadResult {
  std::vector<TraceRequest> requests;
  std::string error;
};
ReadResult ReadAll(TraceReader reader) {
  ReadResult result;
  TraceRequest request;
  while (true) {
    const auto more = reader.Next(request);
    if (!more.ok()) {
      result.error = Message(more.status());
      return result;
    }
    if (!*more) return result;
    result.requests.push_back(request);
  }
}
ReadResult ReadText(std::string text) {
  return ReadAll(TraceReader("t.jsonl", MakeMemorySource(std::move(text)), kBlock));
}

TEST(TraceLine, GivesEveryField) {
  TraceRequest request;
  ASSERT_TRUE(ParseTraceLine(Line("7", "1025", "3", "[5, 6, 9223372036854775807]"), kBlock, request).ok());
  EXPECT_EQ(request.timestamp_ms, 7);
  EXPECT_EQ(request.input_length, Tokens(1025));
  EXPECT_EQ(request.output_length, Tokens(3));
  EXPECT_THAT(request.hash_ids, ElementsAre(5, 6, INT64_MAX));
}

TEST(TraceLine, IgnoresFieldsItDoesNotKnowWhateverTheyHold) {
  TraceRequest request;
  EXPECT_TRUE(
      ParseTraceLine(R"({"x": {"timestamp": -1, "hash_ids": [[-1.5, null], {}]}, "y": [[{}]], "timestamp": 0, "z": "s",
                                 "input_length": 1, "output_length": 0, "w": 1.5, "hash_ids": [0]})",
                     kBlock, request)
          .ok());
  EXPECT_THAT(request.hash_ids, ElementsAre(0));
}

TEST(TraceLine, RefusesBadValuesOfEachFieldByName) {
  for (const char* bad : {"-1", "1.5", "9223372036854775808", "18446744073709551616", "1e3", "1e999", "null", "true",
                          "\"5\"", "[1]", "{}", "-9223372036854775809"}) {
    EXPECT_THAT(ErrorOf(Line(bad, "512", "1", "[0]")), HasSubstr("timestamp")) << bad;
    EXPECT_THAT(ErrorOf(Line("0", bad, "1", "[0]")), HasSubstr("input_length")) << bad;
    EXPECT_THAT(ErrorOf(Line("0", "512", bad, "[0]")), HasSubstr("output_length")) << bad;
    EXPECT_THAT(ErrorOf(Line("0", "512", "1", fmt::format("[{}]", bad))), HasSubstr("hash_ids[0]")) << bad;
  }
  EXPECT_EQ(ErrorOf(Line("-5", "512", "1", "[0]")), "timestamp -5: give a whole number from 0 to 9000000000000");
  EXPECT_THAT(ErrorOf(Line("0", "0", "1", "[]")), HasSubstr("input_length 0: give a whole number from 1"));
  EXPECT_THAT(ErrorOf(Line("0", "512", "1", "7")), HasSubstr("hash_ids 7: give an array"));
}

TEST(TraceLine, NamesAMissingFieldAndARepeatedOne) {
  EXPECT_EQ(ErrorOf("{}"), "timestamp is missing: every request needs it");
  EXPECT_THAT(ErrorOf(R"({"timestamp": 1, "input_length": 1, "hash_ids": [1]})"),
              HasSubstr("output_length is missing"));
  EXPECT_THAT(ErrorOf(R"({"timestamp": 1, "timestamp": 2})"), HasSubstr("timestamp is given twice"));
}

TEST(TraceLine, RefusesWhatIsNotAnObject) {
  EXPECT_THAT(ErrorOf("[]"), HasSubstr("one JSON object a line"));
  EXPECT_THAT(ErrorOf("7"), HasSubstr("one JSON object a line"));
  EXPECT_THAT(ErrorOf("hello"), HasSubstr("not JSON at column 1"));
  EXPECT_THAT(ErrorOf("{\"timestamp\": 1} x"), HasSubstr("not JSON at column"));
  EXPECT_THAT(ErrorOf("\xff\xfe"), HasSubstr("not JSON"));
  EXPECT_THAT(ErrorOf(""), HasSubstr("empty"));
  EXPECT_THAT(ErrorOf(std::string(1'000'000, '[')), HasSubstr("one JSON object a line"));
}

TEST(TraceLine, HashIdsMustFitTheLengthAndTheBlock) {
  EXPECT_EQ(
      ErrorOf(Line("0", "1025", "1", "[1, 2]")),
      "hash_ids has 2 entries, but input_length 1025 at --trace-block 512 needs 3: check --trace-block or the line");
  EXPECT_THAT(ErrorOf(Line("0", "1024", "1", "[1, 2, 3]")), HasSubstr("hash_ids has 3 entries"));
  TraceRequest request;
  EXPECT_TRUE(ParseTraceLine(Line("0", "1024", "1", "[1, 2]"), kBlock, request).ok());
  EXPECT_FALSE(ParseTraceLine(Line("0", "1024", "1", "[1, 2]"), Tokens(256), request).ok());
}

TEST(TraceReader, StreamsRequestsInOrder) {
  const std::string text =
      Line("0", "1", "1", "[1]") + "\n" + Line("0", "2", "1", "[2]") + "\n" + Line("5", "3", "1", "[3]");
  for (const std::string& end : {std::string(), std::string("\n")}) {
    const ReadResult result = ReadText(text + end);
    EXPECT_EQ(result.error, "");
    ASSERT_EQ(result.requests.size(), 3u);
    EXPECT_EQ(result.requests[2].timestamp_ms, 5);
  }
}

TEST(TraceReader, ErrorsNameFileAndLine) {
  const std::string good = Line("9", "1", "1", "[1]") + "\n";
  EXPECT_EQ(ReadText(good + Line("8", "1", "1", "[1]")).error,
            "t.jsonl:2: timestamp 8 goes back behind 9 of the line before: sort the trace by timestamp");
  EXPECT_THAT(ReadText(good + good + "\n" + good).error, HasSubstr("t.jsonl:3: the line is empty"));
  EXPECT_THAT(ReadText("").error, HasSubstr("t.jsonl: the file is empty"));
}

TEST(TraceReader, ATruncatedLastLineIsRefusedAtEveryCut) {
  const std::string good = Line("0", "1024", "1", "[1, 2]");
  for (size_t cut = 1; cut < good.size(); ++cut) {
    const ReadResult result = ReadText(good + "\n" + good.substr(0, cut));
    EXPECT_EQ(result.requests.size(), 1u);
    EXPECT_THAT(result.error, HasSubstr("t.jsonl:2: the line is cut off")) << cut;
  }
}

TEST(TraceReader, ALineLongerThanTheReadBufferIsWhole) {
  std::string ids = "[0";
  for (int i = 1; i < 200'000; ++i) ids += ", " + std::to_string(i);
  ids += "]";
  const std::string length = std::to_string(200'000 * 512);
  const ReadResult result = ReadText(Line("0", length, "1", ids) + "\n" + Line("1", length, "1", ids) + "\n");
  EXPECT_EQ(result.error, "");
  ASSERT_EQ(result.requests.size(), 2u);
  EXPECT_EQ(result.requests[1].hash_ids.back(), 199'999);
}

TEST(TraceReader, ALineWithoutEndIsRefusedBeforeMemoryIs) {
  EXPECT_THAT(ReadText(std::string(kTraceLineBytesMax + (1 << 20), ' ')).error,
              HasSubstr("t.jsonl:1: the line is longer than"));
}

TEST(OpenFile, RefusesWhatCannotBeRead) {
  const std::string folder = ::testing::TempDir();
  EXPECT_THAT(std::string(Message(OpenFile(folder + "/none.jsonl", nullptr).status())),
              HasSubstr("none.jsonl: No such file"));
  EXPECT_THAT(std::string(Message(OpenFile(folder, nullptr).status())), HasSubstr("Is a directory"));
}

TEST(OpenFile, AnInterruptedReadIsCancelled) {
  std::atomic<bool> interrupted = false;
  auto source = OpenFile("/dev/zero", &interrupted);
  ASSERT_TRUE(source.ok()) << source.status();
  std::vector<char> buffer(16);
  EXPECT_EQ((*source)->Read(buffer).value(), 16u);
  interrupted = true;
  EXPECT_TRUE(absl::IsCancelled((*source)->Read(buffer).status()));
}

}  // namespace
}  // namespace tenure::sim
