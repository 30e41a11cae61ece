// Runs ranks on a remote host: ssh or a similar command starts `tandem agent` there.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

#include "run/descriptor.h"
#include "run/host.h"
#include "run/signals.h"

namespace tandem::tools {

// Thrown when a signal terminates the launcher while it starts a job.
struct StartInterrupted {
  int signal = 0;
};

// Sends commands to the agent as lines of JSON. The agent answers in lines that begin with a
// letter:
//
//   > {"do": "ports", "count": 3}        < P 41001 41002 41003
//   > {"do": "start", "ranks": [...]}    < S                     or   < F error message
//   > {"do": "signal", "number": 15}     < O RANK line  < E RANK line  < X RANK PROCESS STATUS
//                                         < C RANK
//
// (o and e instead of O and E: a part of a line.) The job's secret is sent to stdin, so that no
// list of processes shows it. When its input ends, the agent kills its ranks, so that no process
// outlives the connection.
class SshHost final : public Host {
 public:
  // `remote_command`: the path of `tandem` there. reserve_ports() and start() throw
  // UnavailableError if the agent does not answer within `time_limit`, and StartInterrupted if
  // a signal terminates the job.
  SshHost(std::string name, const std::string& ssh, const std::string& remote_command,
          const Signals& signals, std::chrono::milliseconds time_limit);
  ~SshHost() override;

  std::vector<int> reserve_ports(std::size_t count) override;
  void start(const std::vector<RankSpec>& ranks) override;
  void restart(const RankSpec& rank) override;
  void send_signal(int number) override;
  std::string keep_snapshots() override;
  void add_polled(std::vector<pollfd>& polled) const override;
  void progress(RankEvents& events) override;

 private:
  // Never blocks: flush() sends later what the connection does not accept now.
  void send(const std::string& line);
  void flush();
  void send_start(const std::vector<RankSpec>& ranks);
  // Calls `handle(line)` for the agent's lines.
  template <class Handle>
  void read_lines(const Handle& handle);
  // Waits for the agent's next line that begins with one of the letters, or is its hello. Drops the
  // lines before it, and keeps later ones for progress(). Throws UnavailableError on a timeout.
  std::string wait_for_answer(const std::string& letters);
  void handle(const std::string& line, RankEvents& events);

  std::string name_;
  const Signals& signals_;
  std::chrono::milliseconds time_limit_;
  pid_t process_ = -1;
  FileDescriptor input_;
  LineReader output_;
  std::string unsent_;
  std::string line_;                 // the incomplete last line of the agent
  std::vector<std::string> queued_;  // lines that arrived after an answer
  bool reported_ = false;            // whether the loss was reported
};

inline constexpr const char* kAgentHello = "tandem-agent 2";

}  // namespace tandem::tools
