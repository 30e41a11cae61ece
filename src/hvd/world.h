// What init() makes: this process's place in the job, its process sets, the background thread.
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
#include "hvd/lane.h"
#include "hvd/timeline.h"

namespace tandem::hvd {

struct ProcessSet::State {
  int id = 0;
  std::vector<int> ranks;
  int rank = -1;  // this process's place; -1: not in it
  std::mutex mutex;
  std::shared_ptr<Lane> lane;  // of `mutex`. Null: not in it, removed, or the world has ended
};

// What wakes the background thread.
struct Doorbell {
  std::mutex mutex;
  std::condition_variable rung;
  std::atomic<bool> dozing{false}, active{false};
  void ring();
};

// Process sets are made and removed by one thread at a time; the rest is thread-safe.
class World {
 public:
  struct Places {
    std::string host;
    int local_rank = 0, local_size = 1, cross_rank = 0, cross_size = 1;
    bool homogeneous = true;
  };

  explicit World(const InitOptions& options);
  ~World();

  int rank() const { return rank_; }
  int size() const { return size_; }
  const Places& places() const { return places_; }
  Timeline& timeline() { return *timeline_; }

  const std::shared_ptr<ProcessSet::State>& global_set() const { return global_; }
  std::shared_ptr<ProcessSet::State> add_set(const std::vector<int>& ranks);
  bool remove_set(ProcessSet::State& set);

  // Ends this rank's part. `limit`: for the others to take note.
  void shut_down(std::chrono::milliseconds limit);
  bool ended() const { return ended_.load(); }

 private:
  void find_places();
  void share_cores();
  std::shared_ptr<Lane> make_lane(int id, const std::vector<int>& ranks);
  void run();  // the background thread

  InitOptions options_;
  int rank_ = 0, size_ = 1;
  Settings settings_;
  std::string backend_;
  std::shared_ptr<Timeline> timeline_ = std::make_shared<Timeline>();
  std::shared_ptr<Job> job_;  // null: a job of one
  bool owns_job_ = false;
  std::unique_ptr<Communicator> communicator_;  // for process sets
  Places places_;
  std::shared_ptr<ProcessSet::State> global_;
  int next_set_ = 0;
  std::atomic<bool> ended_{false};

  std::shared_ptr<Doorbell> bell_ = std::make_shared<Doorbell>();
  std::map<int, std::shared_ptr<Lane>> lanes_;  // of the bell's mutex
  bool stopping_ = false;                       // as well
  std::thread thread_;
};

// Throws FailedPreconditionError "Horovod has not been initialized; use hvd.init()."
std::shared_ptr<World> world();
// Throws that, too, and InvalidArgumentError for a set that this rank is not in or that was
// removed.
std::shared_ptr<Lane> lane_of(const ProcessSet& set);

}  // namespace tandem::hvd
