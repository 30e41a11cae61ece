// Ranks of this process that end together, and what NCCL does for them.
#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "comm/nccl/module/connection.h"
#include "device/shared_failure.h"
#include "tandem/errors.h"

namespace tandem::nccl_backend {

// Calls of NCCL's that have been made, until the GPUs of this process are through with them.
class Launch {
 public:
  // `stream`: what ends there ends in order.
  explicit Launch(cudaStream_t stream) : stream_(stream) {}
  virtual ~Launch() = default;
  Launch(const Launch&) = delete;
  Launch& operator=(const Launch&) = delete;
  // Whether the GPUs have come to it: from then on its time runs.
  virtual bool reached() const { return true; }
  virtual bool ended() = 0;
  virtual std::string describe() const = 0;

 private:
  friend class Connections;
  const cudaStream_t stream_;
  std::optional<std::chrono::steady_clock::time_point> since_;
};

// All GPUs' of a clique; of a group, its own connection and those of its messages. Thread-safe: the
// watch (watch.h) looks after what is under way, whatever the program does meanwhile. What fails,
// or has not ended within the time limit, ends all of them, so that the GPUs get on; what it was to
// bring holds anything. From then on every call throws why.
class Connections {
 public:
  using Clock = std::chrono::steady_clock;

  struct Options {
    std::string name;  // for errors: "rank 1 of 4 of group 'world'"
    std::chrono::milliseconds time_limit;
    std::function<void()> check_peers = nullptr;  // throws when one is known to be gone
    // What the watch ends them with, before the GPUs get on.
    std::function<void(const std::shared_ptr<SharedFailure>&)> on_failure = nullptr;
  };

  explicit Connections(Options options);
  // Says goodbye to the peers, which takes a few seconds at most.
  ~Connections();
  Connections(const Connections&) = delete;
  Connections& operator=(const Connections&) = delete;

  // One more. REQUIRES: its GPU is the thread's. Ranks of one communicator are added within one
  // group of NCCL's.
  const Connection& add(int rank, int size, const ncclUniqueId& id, cudaStream_t stream = nullptr);

  // Whether NCCL is through with the calls made so far, on all or on one.
  bool ready();
  bool ready(const Connection& connection);
  // Makes calls of NCCL, as one. REQUIRES: ready(), of those that they are made on.
  void call(const std::function<void()>& calls);
  // What was called is under way.
  void watch(std::shared_ptr<Launch> launch);
  bool ended(Launch& launch);
  // The caller waits for it and what is before it, by a limit of its own: the watch's begins anew.
  void put_off(const Launch& launch);

  bool failed() const;
  // Throws what the watch has ended the connections with, unless somebody has been told.
  void check_untold();
  // Ends what is under way, in this process.
  void end(std::exception_ptr error) noexcept;
  // For the watch, again and again.
  void look(Clock::time_point now) noexcept;

 private:
  void check_sound() const;
  AbortedError in_midst_of(const Launch& launch, const Error& error) const;
  // What the connections have failed with, or null.
  std::exception_ptr find_failure(Clock::time_point now);
  std::vector<ncclComm_t> take_comms();

  const Options options_;
  mutable std::mutex mutex_;
  std::exception_ptr failure_;
  std::shared_ptr<SharedFailure> untold_;  // the same, where the watch has found it
  std::vector<std::unique_ptr<Connection>> all_;
  std::list<std::shared_ptr<Launch>> under_way_;
};

}  // namespace tandem::nccl_backend
