// Interface to the ranks of one host: this machine, or a remote one through ssh.
#pragma once

#include <poll.h>
#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "run/plan.h"

namespace tandem::tools {

enum class StandardStream { kStdout, kStderr };

// A rank to start.
struct RankSpec {
  int rank = 0, local_rank = 0, local_size = 1;
  bool bind = true;  // bind it to its share of the cores
  std::vector<std::string> program;
  Environment environment;  // in addition to the launcher's environment
  // The host sets TANDEM_PS_SNAPSHOTS to a directory for the job in this one. Empty: TMPDIR, or
  // /tmp.
  std::optional<std::string> snapshots;
};

// Receives the events of a host's ranks.
class RankEvents {
 public:
  virtual ~RankEvents() = default;
  // A rank has written bytes: a line with its end, or a part of one.
  virtual void wrote(int rank, StandardStream output, std::string_view bytes) = 0;
  // A rank has ended. `status`: from waitpid().
  virtual void ended(int rank, pid_t process, int status) = 0;
  // All output of a rank was reported. Called after ended().
  virtual void closed(int rank) = 0;
  // The host is no longer reachable; its ranks that have not ended are lost.
  virtual void lost(const std::string& reason) = 0;
};

// Its destructor kills ranks that still run.
class Host {
 public:
  virtual ~Host() = default;
  // Free ports of the host. No other launcher gets them while the object lives.
  virtual std::vector<int> reserve_ports(std::size_t count) = 0;
  // Starts all of them or none. Throws NotFoundError if the program does not exist.
  virtual void start(const std::vector<RankSpec>& ranks) = 0;
  // Starts a rank that has ended and whose output was reported once more. Throws NotFoundError if
  // the program does not exist any more, or reports the host as lost.
  virtual void restart(const RankSpec& rank) = 0;
  // Sends a signal to every process of all running ranks.
  virtual void send_signal(int number) = 0;
  // The destructor removes the job's snapshots on the host, unless this was called. Returns their
  // directory; empty if there are none.
  virtual std::string keep_snapshots() = 0;
  // Adds the descriptors to poll. progress() reads what is available, and never blocks.
  virtual void add_polled(std::vector<pollfd>& polled) const = 0;
  virtual void progress(RankEvents& events) = 0;
};

}  // namespace tandem::tools
