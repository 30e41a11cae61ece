// NCCL connections of this process that are aborted together, and their launched work.
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

// NCCL calls that have been made and have not ended on this process's GPUs.
class NcclLaunch {
 public:
  // `stream`: launches of one stream end in order.
  explicit NcclLaunch(cudaStream_t stream) : stream_(stream) {}
  virtual ~NcclLaunch() = default;
  NcclLaunch(const NcclLaunch&) = delete;
  NcclLaunch& operator=(const NcclLaunch&) = delete;
  // Whether the GPUs have started it, from which time its limit counts.
  virtual bool reached() const { return true; }
  virtual bool ended() = 0;
  virtual std::string describe() const = 0;

 private:
  friend class Connections;
  const cudaStream_t stream_;
  std::optional<std::chrono::steady_clock::time_point> since_;
};

// For a clique: the connections of all its GPUs. For a group: its own connection and those of its
// messages. Thread-safe. A thread polls the launched work, whatever the program does meanwhile:
// nothing else notices that a launched collective never completes on a GPU. If a launch fails or
// exceeds the time limit, all connections are aborted so that the GPUs can continue. Results are
// then undefined, and every later call throws the error.
class Connections {
 public:
  using Clock = std::chrono::steady_clock;

  struct Options {
    std::string name;  // for messages: "rank 1 of 4 of group 'world'"
    std::chrono::milliseconds time_limit;
    std::function<void()> check_peers = nullptr;  // throws if a peer is known to be gone
    // The watch calls it with the error before the GPUs continue.
    std::function<void(const std::shared_ptr<SharedFailure>&)> on_failure = nullptr;
  };

  explicit Connections(Options options);
  // Tells the peers that this rank leaves, which takes a few seconds at most.
  ~Connections();
  Connections(const Connections&) = delete;
  Connections& operator=(const Connections&) = delete;

  // Adds a connection. REQUIRES: its GPU is current. Ranks of one communicator are added inside one
  // NCCL group.
  const NcclConnection& add(int rank, int size, const ncclUniqueId& id,
                            cudaStream_t stream = nullptr);

  // Whether NCCL has processed the calls made so far, on all connections or on one.
  bool ready();
  bool ready(const NcclConnection& connection);
  // Makes NCCL calls as one group. REQUIRES: ready() for the connections that they use.
  void call(const std::function<void()>& calls);
  // Registers launched work with the watch.
  void watch(std::shared_ptr<NcclLaunch> launch);
  bool ended(NcclLaunch& launch);
  // The caller waits for this launch and those before it, with a limit of its own: restarts the
  // watch's limit.
  void restart_limit(const NcclLaunch& launch);

  bool failed() const;
  // Throws the error with which the watch aborted the connections, unless it was reported already.
  void check_unreported();
  // Aborts the launched work in this process.
  void abort(std::exception_ptr error) noexcept;

 private:
  class Watch;

  // Checks the work. Called periodically, on the watch's thread.
  void look(Clock::time_point now) noexcept;
  void throw_if_failed() const;
  AbortedError error_during(const NcclLaunch& launch, const Error& error) const;
  // The error that the connections have failed with, or null.
  std::exception_ptr find_failure(Clock::time_point now);
  std::vector<ncclComm_t> take_comms();

  const Options options_;
  mutable std::mutex mutex_;
  std::exception_ptr failure_;
  std::shared_ptr<SharedFailure> unreported_;  // the same error, if the watch found it
  std::vector<std::unique_ptr<NcclConnection>> all_;
  std::list<std::shared_ptr<NcclLaunch>> under_way_;
};

}  // namespace tandem::nccl_backend
