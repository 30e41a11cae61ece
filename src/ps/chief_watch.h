// The state of a task that serves: which chief it serves, and whether that is alive.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "ps/proto/task_calls.pb.h"
#include "rpc/server.h"

namespace tandem::ps {

// A run is the life of one chief. A task serves one run, because what it holds belongs to that: the
// variables, and which closures have been applied. Thread-safe.
class ChiefWatch {
 public:
  // `directory`: keeps the run and the restarts, so that a restarted task serves no other run.
  // Empty: none. `updates`: with which a parameter server continues. A file that cannot be written
  // is tried again whenever the chief shows that it is alive. Throws DataLossError for a damaged
  // one.
  ChiefWatch(std::string type, int index, const std::filesystem::path& directory,
             std::uint64_t updates = 0);

  // Begins the chief's run or shows that the chief is alive. Throws FailedPreconditionError for a
  // call that is meant for another task, and for another run.
  proto::AttachReply attach(const proto::AttachRequest& request);
  // Ends the run; another one: nothing happens.
  void end(std::uint64_t run);
  // Waits until the run has ended, for at most `time`. Returns whether it has. Throws
  // UnavailableError if the chief was not heard of for `limit`.
  bool wait(std::chrono::milliseconds limit, std::chrono::milliseconds time);
  const std::vector<std::uint64_t>& restarts() const { return restarts_; }  // ServerLife
  // Sets the task, its incarnation, and what it knows of the chief.
  void describe(proto::StatusReply& reply) const;

 private:
  void keep();

  const std::string name_;
  const std::filesystem::path file_;
  const std::uint64_t incarnation_;
  std::vector<std::uint64_t> restarts_;
  mutable std::mutex mutex_;  // guards the following
  std::condition_variable changed_;
  std::uint64_t run_ = 0;  // 0: none yet
  bool kept_ = true;       // false: the file could not be written
  bool ended_ = false;
  std::chrono::steady_clock::time_point heard_;
};

// Answers the calls of task_calls.proto for this watch, which has to outlive the server. REQUIRES:
// before start().
void serve(rpc::Server& server, ChiefWatch& watch);

inline constexpr const char* kAttach = "Task/Attach";
inline constexpr const char* kEnd = "Task/End";

}  // namespace tandem::ps
