// The state between init() and shutdown(): this process's ranks, its process sets, the
// background thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "comm/communicator.h"
#include "comm/rendezvous/rendezvous.h"
#include "core/threads.h"
#include "hvd/process_set_coordinator.h"
#include "hvd/timeline.h"

namespace tandem::hvd {

struct ProcessSet::State {
  int id = 0;
  std::vector<int> ranks;
  int rank = -1;  // this process's rank in the set; -1 if it is not a member
  std::mutex mutex;
  std::shared_ptr<ProcessSetCoordinator>
      coordinator;  // guarded by `mutex`. Null: not a member, removed, or shut down
};

// Wakes the background thread.
struct Wakeup {
  std::mutex mutex;
  std::condition_variable condition;
  std::atomic<bool> sleeping{false}, active{false};
  void notify();
};

// One thread at a time may add and remove process sets; the rest is thread-safe.
class World {
 public:
  struct Topology {
    std::string host;
    int local_rank = 0, local_size = 1, cross_rank = 0, cross_size = 1;
    bool homogeneous = true;
  };

  explicit World(const InitOptions& options);
  ~World();

  int rank() const { return rank_; }
  int size() const { return size_; }
  const Topology& topology() const { return topology_; }
  const comm::ProcessGroup& group() const { return options_.group; }
  Timeline& timeline() { return *timeline_; }
  bool marks_cycles() const { return settings_.mark_cycles; }  // by the environment

  const std::shared_ptr<ProcessSet::State>& global_set() const { return global_; }
  std::shared_ptr<ProcessSet::State> add_set(const std::vector<int>& ranks);
  bool remove_set(ProcessSet::State& set);

  // Whether it is of this process, and not of the one that forked it.
  bool is_here() const { return process_.is_this(); }

  // Ends this rank's membership. Waits at most `limit` until the others know.
  void shut_down(std::chrono::milliseconds limit);
  bool ended() const { return ended_.load(); }

 private:
  void join(comm::ProcessGroupImpl& group);
  void find_topology();
  void share_cores();
  std::shared_ptr<ProcessSetCoordinator> make_coordinator(int id, const std::vector<int>& ranks);
  void run();  // the background thread

  InitOptions options_;
  int rank_ = 0, size_ = 1;
  Settings settings_;
  std::string backend_;
  std::shared_ptr<Timeline> timeline_ = std::make_shared<Timeline>();
  std::shared_ptr<Job> job_;  // null for a single process
  bool owns_job_ = false;
  std::unique_ptr<Communicator> communicator_;  // for process sets
  Topology topology_;
  std::shared_ptr<ProcessSet::State> global_;
  int next_set_ = 0;
  std::atomic<bool> ended_{false};

  std::shared_ptr<Wakeup> wakeup_ = std::make_shared<Wakeup>();
  std::map<int, std::shared_ptr<ProcessSetCoordinator>> coordinators_;  // guarded by wakeup_->mutex
  bool stopping_ = false;                                               // guarded by it, too
  std::thread thread_;
  OwnProcess process_;
};

// The World of this process. Throws FailedPreconditionError "Horovod has not been initialized;
// use hvd.init()."
std::shared_ptr<World> world();
// Throws the same, and InvalidArgumentError if this rank is not in the set or the set was removed.
std::shared_ptr<ProcessSetCoordinator> coordinator_of(const ProcessSet& set);

}  // namespace tandem::hvd
