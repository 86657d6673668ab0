// A daemon for tests, in a thread of the test or in a process of its own, and processes that play clients. For tests
// only.
//
// Processes are forked, so a test makes them before it starts any thread (TestDaemon, DaemonPool); each waits until it
// is told to begin.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/time/time.h"
#include "tenure/base/clock.h"
#include "tenure/base/units.h"
#include "tenure/daemon/daemon_server.h"
#include "tenure/daemon/file_descriptor.h"
#include "tenure/store/embedded_pool.h"

namespace tenure::daemon {

inline constexpr absl::Duration kTestPatience = absl::Seconds(30);

// A new folder, removed with all that is in it.
class TempFolder {
 public:
  TempFolder();
  ~TempFolder();
  std::string File(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// Asks again and again until `holds` or until kTestPatience has passed.
bool Eventually(const std::function<bool()>& holds);

struct TestDaemonOptions {
  Bytes capacity{int64_t{8} << 20};
  Bytes slab_bytes{int64_t{1} << 20};
  store::PoolMode mode = store::PoolMode::kClosed;
  int64_t objects_max = 0;     // As in EmbeddedPoolOptions.
  DaemonServerOptions server;  // Mode and object size are filled in.
};

class TestDaemon {
 public:
  // Serves from a thread of its own when it returns.
  TestDaemon(const std::string& socket_path, const TestDaemonOptions& options, const Clock& clock);
  ~TestDaemon();

  store::EmbeddedPool& pool() { return *pool_; }
  DaemonServer& server() { return *server_; }
  // Ends as on a signal; returns when it has drained.
  void Stop();
  // Changes the first stored byte of a present object.
  bool Corrupt(const store::ObjectKey& key);

 private:
  std::unique_ptr<store::EmbeddedPool> pool_;
  std::unique_ptr<DaemonServer> server_;
  FileDescriptor memory_;
  std::thread thread_;
};

// Another process. It runs `body` once begun, and ends with what that returns, or with the thread that made it.
class TestProcess {
 public:
  // The body's way to speak with the test: one byte each way. Both wait at most kTestPatience.
  class Line {
   public:
    Line(int in, int out) : in_(in), out_(out) {}
    void Say() const;
    // False when nothing came.
    bool Hear() const;

   private:
    int in_;
    int out_;
  };

  explicit TestProcess(const std::function<int(const Line&)>& body);
  ~TestProcess();  // Kills it if it still runs.

  pid_t pid() const { return pid_; }
  // The first word begins the body.
  void Say() const;
  bool Hear() const;
  void Signal(int number) const;
  // The exit code, or minus the signal that ended it; nothing more to end afterwards.
  int Wait();

 private:
  FileDescriptor to_;
  FileDescriptor from_;
  pid_t pid_ = -1;
};

// The body of a process that serves until SIGTERM or a kill; says one word when clients can connect.
int ServeInProcess(const TestProcess::Line& line, const std::string& socket_path, const TestDaemonOptions& options);

}  // namespace tenure::daemon
