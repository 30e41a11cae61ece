// Ranks on this machine.
#pragma once

#include <sys/resource.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "run/descriptor.h"
#include "run/guardian.h"
#include "run/host.h"

namespace tandem::tools {

// Every rank leads a process group of its own, dies with this process, and writes into pipes. What
// a rank has started is killed when the rank ends.
class LocalHost final : public Host {
 public:
  LocalHost();
  ~LocalHost() override;

  std::vector<int> reserve_ports(std::size_t count) override;
  void start(const std::vector<RankSpec>& ranks) override;
  void send_signal(int number) override;
  void add_polled(std::vector<pollfd>& polled) const override;
  void progress(RankEvents& events) override;

 private:
  struct Running {
    int rank = 0;
    pid_t process = -1;
    LineReader out, err;
    std::optional<int> status;
    std::chrono::steady_clock::time_point drained_by;  // once it has ended
    bool closed = false;
  };

  void start_one(const RankSpec& spec);
  void collect_ended(RankEvents& events);
  void end(Running& running);

  const rlimit descriptors_;  // of the ranks; the launcher may raise its own
  Guardian guardian_;
  std::vector<Descriptor> reserved_;
  std::vector<Running> ranks_;
};

// The cores for a rank: its share of those this process may use, siblings of a core together.
std::vector<int> cores_of(int local_rank, int local_size);

}  // namespace tandem::tools
