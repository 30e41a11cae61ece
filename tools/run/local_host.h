// Runs ranks on this machine.
#pragma once

#include <sys/resource.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "run/descriptor.h"
#include "run/guardian.h"
#include "run/host.h"
#include "run/job_directory.h"

namespace tandem::tools {

// Each rank leads a process group, dies with this process, and writes into pipes. Processes that
// a rank has started are killed when it ends.
class LocalHost final : public Host {
 public:
  LocalHost();
  ~LocalHost() override;

  std::vector<int> reserve_ports(std::size_t count) override;
  void start(const std::vector<RankSpec>& ranks) override;
  void restart(const RankSpec& rank) override { start_one(rank); }
  void send_signal(int number) override;
  std::string keep_snapshots() override;
  void add_polled(std::vector<pollfd>& polled) const override;
  void progress(RankEvents& events) override;

 private:
  struct RunningRank {
    int rank = 0;
    pid_t process = -1;
    LineReader out, err;
    std::optional<int> status;
    std::chrono::steady_clock::time_point drained_by;  // set once it has ended
    bool closed = false;
  };

  void start_one(RankSpec spec);
  void collect_ended(RankEvents& events);
  void end(RunningRank& running);

  const rlimit descriptors_;  // limit of open files for ranks; the launcher may raise its own
  Guardian guardian_;
  std::vector<FileDescriptor> reserved_;
  std::optional<JobDirectory> snapshots_;
  std::vector<RunningRank> ranks_;
};

// An equal share of this process's cores for a rank. Hyper-threads of a core stay together.
std::vector<int> cores_of(int local_rank, int local_size);

}  // namespace tandem::tools
