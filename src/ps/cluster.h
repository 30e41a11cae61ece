// The workers and parameter servers of a cluster, as the chief sees them.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "ps/lost_updates.h"
#include "ps/task_connections.h"

namespace tandem::ps {

inline constexpr const char* kParameterServer = "ParameterServerStrategy";  // in messages

// Begins a run with all tasks, shows them that the chief is alive, and ends the run. Thread-safe.
class Cluster {
 public:
  struct Options {
    distribute::ClusterSecurity security;
    std::chrono::milliseconds start_limit = std::chrono::minutes(10);
    std::chrono::milliseconds heartbeat = std::chrono::seconds(5);
    // When the log names the tasks that are missing; then after pauses that grow to a minute.
    std::chrono::milliseconds report_after = std::chrono::seconds(5);
  };
  struct Task {
    std::string name;  // "ps:1 (HOST:PORT)"
    std::shared_ptr<rpc::Channel> channel;
  };

  // Waits until every task has answered. Throws InvalidArgumentError, with TensorFlow's messages,
  // for an empty cluster and for one without servers or workers; DeadlineExceededError that names
  // the tasks that have not answered within `start_limit`; FailedPreconditionError of a task that
  // has another token or serves another chief, at once; and as TaskConnections does.
  Cluster(const distribute::ClusterResolver& resolver, const Options& options);
  // shutdown().
  ~Cluster();
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;

  // By their index.
  const std::vector<Task>& workers() const { return workers_; }
  const std::vector<Task>& servers() const { return servers_; }
  // Learns of servers that were restarted.
  const std::shared_ptr<LostUpdates>& lost_updates() const { return lost_updates_; }

  // Ends the run: Server::join() of every task that can be reached returns. Later calls do nothing.
  void shutdown();

 private:
  struct State;  // of a task

  void add(const TaskAddress& address, const TaskConnections& connections);
  void attach_all();
  void watch();
  void look_at(State& task, rpc::Call& call);
  void end_run() noexcept;

  const Options options_;
  const std::uint64_t run_;
  std::vector<Task> workers_, servers_;
  std::shared_ptr<LostUpdates> lost_updates_;
  std::vector<std::unique_ptr<State>> tasks_;  // all
  std::mutex mutex_;                           // guards the following
  std::condition_variable stopping_;
  bool stopped_ = false;
  std::thread thread_;
};

}  // namespace tandem::ps
