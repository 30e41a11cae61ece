// The ranks of one host, as the launcher sees them: on this machine, or through ssh on another.
#pragma once

#include <poll.h>
#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

#include "run/plan.h"

namespace tandem::tools {

enum class Output { kStdout, kStderr };

// A rank to start.
struct RankSpec {
  int rank = 0, local_rank = 0, local_size = 1;
  bool bind = true;  // to its share of the cores
  std::vector<std::string> program;
  Environment environment;  // besides what the launcher's process has
};

// What a host tells of its ranks.
class RankEvents {
 public:
  virtual ~RankEvents() = default;
  // Bytes that a rank has written: a line with its end, or what came of one.
  virtual void wrote(int rank, Output output, std::string_view bytes) = 0;
  // `status` as of waitpid().
  virtual void ended(int rank, pid_t process, int status) = 0;
  // All that it wrote has been told. Comes after ended().
  virtual void closed(int rank) = 0;
  // The host cannot be reached any more; those of its ranks that have not ended are lost.
  virtual void lost(const std::string& reason) = 0;
};

// Destroying it kills what still runs.
class Host {
 public:
  virtual ~Host() = default;
  // Ports that are free there, and that no other launcher is given while the object lives.
  virtual std::vector<int> reserve_ports(std::size_t count) = 0;
  // All or none. Throws NotFoundError when there is no such program.
  virtual void start(const std::vector<RankSpec>& ranks) = 0;
  // To every process of each rank that runs.
  virtual void send_signal(int number) = 0;
  // What to poll for; progress() reads what there is, and never waits.
  virtual void add_polled(std::vector<pollfd>& polled) const = 0;
  virtual void progress(RankEvents& events) = 0;
};

}  // namespace tandem::tools
