// Writes into another process beside their yardsticks, in alternating pairs: `local` beside memcpy, `tcp` and `ucx`
// beside UCX's own ucx_perftest over the same TCP. Each figure is the median of 11 pairs.
//
// A share is void, and the benchmark says so instead of giving one, when the yardstick's own runs differ by more than a
// fifth (interquartile range over median): then the machine was busy with something else. What a busy machine changes
// less is the processor time of both, `cpu_share`, where both run in this process.
#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <functional>
#include <vector>

#include "tenure/base/check.h"
#include "tenure/base/random.h"
#include "tenure/transfer/peer_process_testing.h"
#include "tenure/transfer/transport_rig_testing.h"
#include "tenure/transfer/transports.h"

namespace tenure::transfer {
namespace {

constexpr int kPairs = 11;
constexpr double kSpreadMax = 0.2;
constexpr uint64_t kSeed = 20261130;

struct Quartiles {
  double low = 0;
  double median = 0;
  double high = 0;
};

Quartiles QuartilesOf(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t count = values.size();
  return {values[count / 4], values[count / 2], values[count * 3 / 4]};
}

// One run: by the clock on the wall, and what this process has spent of processors.
struct Cost {
  double seconds = 0;
  double cpu_seconds = 0;
};

Cost CostOf(const std::function<void()>& body) {
  const MonotonicClock clock;
  const std::clock_t cpu_start = std::clock();
  const MonotonicTime start = clock.Now();
  body();
  return {absl::ToDoubleSeconds(clock.Now() - start),
          static_cast<double>(std::clock() - cpu_start) / static_cast<double>(CLOCKS_PER_SEC)};
}

// Runs pairs and fills the counters: rates from bytes and seconds, the share from each pair.
void Compare(benchmark::State& state, double bytes, const std::function<Cost()>& run_subject,
             const std::function<Cost()>& run_yardstick) {
  std::vector<double> subject;
  std::vector<double> yardstick;
  std::vector<double> shares;
  std::vector<double> cpu_shares;
  for (auto _ : state) {
    run_subject();  // Both once unseen: page tables, connections.
    run_yardstick();
    double seconds = 0;
    for (int pair = 0; pair < kPairs; ++pair) {
      const Cost ours = run_subject();
      const Cost theirs = run_yardstick();
      subject.push_back(ours.seconds);
      yardstick.push_back(theirs.seconds);
      shares.push_back(theirs.seconds / ours.seconds);
      if (theirs.cpu_seconds > 0) cpu_shares.push_back(theirs.cpu_seconds / ours.cpu_seconds);
      seconds += subject.back();
    }
    state.SetIterationTime(seconds);
  }
  const Quartiles measured = QuartilesOf(yardstick);
  const double spread = (measured.high - measured.low) / measured.median;
  state.counters["GB_per_s"] = bytes / QuartilesOf(subject).median * 1e-9;
  state.counters["yardstick_GB_per_s"] = bytes / measured.median * 1e-9;
  state.counters["yardstick_spread"] = spread;
  if (!cpu_shares.empty()) state.counters["cpu_share"] = QuartilesOf(cpu_shares).median;
  if (yardstick.front() <= 0) return state.SkipWithError("no yardstick: install ucx-utils");
  if (spread > kSpreadMax) {
    return state.SkipWithError(
        fmt::format("void: the yardstick's runs differ by {:.0f} %, {:.2f} GB/s beside {:.2f}, cpu share {:.2f}",
                    spread * 100, bytes / QuartilesOf(subject).median * 1e-9, bytes / measured.median * 1e-9,
                    cpu_shares.empty() ? 0 : QuartilesOf(cpu_shares).median)
            .c_str());
  }
  state.counters["share"] = QuartilesOf(shares).median;
}

// Blocks of one size in an order that joins none of them.
class Blocks {
 public:
  Blocks(uint64_t bytes, uint64_t block) : block_(block) {
    for (uint64_t offset = 0; offset < bytes; offset += block) offsets_.push_back(offset);
    Random random(kSeed);
    std::shuffle(offsets_.begin(), offsets_.end(), random);
  }
  std::vector<pd::WritePiece> Pieces(uint64_t from, uint64_t to) const {
    std::vector<pd::WritePiece> pieces;
    for (const uint64_t offset : offsets_) pieces.push_back({from + offset, to + offset, block_});
    return pieces;
  }

 private:
  uint64_t block_;
  std::vector<uint64_t> offsets_;
};

// A transport and a peer with as much memory.
class Pair {
 public:
  Pair(std::string_view kind, uint64_t bytes)
      : source_(bytes, kSeed), peer_(kind, bytes), transport_(CreateTransport(kind, "127.0.0.1", clock_).value()) {
    TENURE_CHECK(transport_->Register(source_.range()).ok());
  }
  uint64_t from() const { return source_.address(); }
  uint64_t to() const { return peer_.base(); }
  Cost Write(std::vector<pd::WritePiece> pieces) {
    return CostOf([&] {
      const WriteResult result =
          WriteAndWait(*transport_, peer_.address(), std::move(pieces), clock_.Now() + absl::Minutes(1));
      TENURE_CHECK(result.status.ok());
    });
  }

 private:
  const MonotonicClock clock_;
  const TestMemory source_;
  PeerProcess peer_;
  const std::unique_ptr<Transport> transport_;
};

// range(0): bytes in all; range(1): bytes a block.
void BM_LocalBesideMemcpy(benchmark::State& state) {
  const auto bytes = static_cast<uint64_t>(state.range(0));
  Pair pair("local", bytes);
  TestMemory copy(bytes);
  const Blocks blocks(bytes, static_cast<uint64_t>(state.range(1)));
  const auto pieces = blocks.Pieces(pair.from(), pair.to());
  const auto copies = blocks.Pieces(pair.from(), copy.address());
  Compare(
      state, static_cast<double>(bytes), [&] { return pair.Write(pieces); },
      [&] {
        return CostOf([&] {
          for (const pd::WritePiece& piece : copies) {
            std::memcpy(reinterpret_cast<void*>(piece.to), reinterpret_cast<const void*>(piece.from), piece.size);
          }
          benchmark::ClobberMemory();
        });
      });
}
BENCHMARK(BM_LocalBesideMemcpy)
    ->ArgNames({"bytes", "block"})
    ->Args({512 << 20, 64 << 10})
    ->Args({512 << 20, 1 << 20})
    ->UseManualTime()
    ->Iterations(1);

pid_t StartPerftest(const std::vector<const char*>& arguments, int out) {
  const pid_t child = fork();
  TENURE_CHECK(child >= 0);
  if (child != 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  dup2(out, STDOUT_FILENO);
  dup2(out, STDERR_FILENO);
  setenv("UCX_TLS", "^sm", 1);
  std::vector<char*> words;
  for (const char* argument : arguments) words.push_back(const_cast<char*>(argument));
  words.push_back(nullptr);
  execvp("ucx_perftest", words.data());
  _exit(127);
}

std::string ReadToEnd(int descriptor) {
  std::string text;
  std::array<char, 4096> part;
  for (ssize_t size = 0; (size = read(descriptor, part.data(), part.size())) > 0;) {
    text.append(part.data(), static_cast<size_t>(size));
  }
  return text;
}

// Seconds in which ucx_perftest puts `bytes` in blocks of `block`; 0 when there is no such program. Its last line has
// the overall latency of a block, in microseconds, in the fourth of its fields. Asked as ours is used: two processes on
// loopback, all lanes but shared memory, endpoints that notice a dead peer (-e), registered memory (-z). It polls and
// puts the same block over and over, and bounds its puts by its own window, with which it is faster than with ours.
double PerftestSeconds(uint64_t bytes, uint64_t block) {
  const std::string size = fmt::format("{}", block);
  const std::string count = fmt::format("{}", bytes / block);
  static int port = 23'400;
  const std::string port_text = fmt::format("{}", port++);
  std::array<int, 2> quiet;
  std::array<int, 2> out;
  TENURE_CHECK(pipe(quiet.data()) == 0 && pipe(out.data()) == 0);
  const pid_t server = StartPerftest({"ucx_perftest", "-e", "-z", "-p", port_text.c_str()}, quiet[1]);
  double microseconds = 0;
  // The server may need a moment to listen.
  for (int attempt = 0; attempt < 20 && microseconds <= 0; ++attempt) {
    usleep(100'000);
    const pid_t client = StartPerftest({"ucx_perftest", "127.0.0.1", "-t", "ucp_put_bw", "-s", size.c_str(), "-n",
                                        count.c_str(), "-w", "4", "-f", "-v", "-e", "-z", "-p", port_text.c_str()},
                                       out[1]);
    int status = 0;
    waitpid(client, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 127) break;
    if (status != 0) continue;
    close(out[1]);
    out[1] = -1;
    const std::string text = ReadToEnd(out[0]);
    const size_t line = text.rfind('\n', text.size() - 2);
    std::sscanf(text.c_str() + (line == text.npos ? 0 : line + 1), "%*[^,],%*[^,],%*[^,],%lf", &microseconds);
  }
  kill(server, SIGKILL);
  waitpid(server, nullptr, 0);
  for (const int end : {quiet[0], quiet[1], out[0], out[1]}) {
    if (end >= 0) close(end);
  }
  return microseconds * 1e-6 * static_cast<double>(bytes / block);
}

void BesidePerftest(benchmark::State& state, std::string_view kind) {
  const auto bytes = static_cast<uint64_t>(state.range(0));
  const auto block = static_cast<uint64_t>(state.range(1));
  Pair pair(kind, bytes);
  const auto pieces = Blocks(bytes, block).Pieces(pair.from(), pair.to());
  Compare(
      state, static_cast<double>(bytes), [&] { return pair.Write(pieces); },
      [&] {
        return Cost{PerftestSeconds(bytes, block), 0};
      });
}
void BM_UcxBesidePerftest(benchmark::State& state) { BesidePerftest(state, "ucx"); }
void BM_TcpBesidePerftest(benchmark::State& state) { BesidePerftest(state, "tcp"); }
void PerftestSizes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"bytes", "block"})
      ->Args({512 << 20, 1 << 20})
      ->Args({256 << 20, 64 << 10})
      ->Args({128 << 20, 4 << 10})
      ->UseManualTime()
      ->Iterations(1);
}
BENCHMARK(BM_TcpBesidePerftest)->Apply(PerftestSizes);
BENCHMARK(BM_UcxBesidePerftest)->Apply(PerftestSizes);

// One small block and its answer.
void BM_SmallWrite(benchmark::State& state, const char* kind) {
  Pair pair(kind, 1 << 20);
  const std::vector<pd::WritePiece> piece = {{pair.from(), pair.to(), 4096}};
  for (auto _ : state) state.SetIterationTime(pair.Write(piece).seconds);
}
BENCHMARK_CAPTURE(BM_SmallWrite, local, "local")->UseManualTime();
BENCHMARK_CAPTURE(BM_SmallWrite, tcp, "tcp")->UseManualTime();
BENCHMARK_CAPTURE(BM_SmallWrite, ucx, "ucx")->UseManualTime();

}  // namespace
}  // namespace tenure::transfer
