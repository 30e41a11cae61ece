// Ranks on another machine, through a command such as ssh that runs `tandem agent` there.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

#include "run/descriptor.h"
#include "run/host.h"
#include "run/signals.h"

namespace tandem::tools {

// The launcher was asked to end while it started a job.
struct StartInterrupted {
  int signal = 0;
};

// The agent is told what to do in lines of JSON, and answers in lines that begin with a letter:
//
//   > {"do": "ports", "count": 3}        < P 41001 41002 41003
//   > {"do": "start", "ranks": [...]}    < S                     or   < F why it cannot
//   > {"do": "signal", "number": 15}     < O RANK line  < E RANK line  < X RANK PROCESS STATUS
//                                         < C RANK
//
// (o and e in place of O and E: a part of a line.)
// What the job keeps secret is not seen in any list of processes. When its input ends, the agent
// kills its ranks: nothing outlives the connection.
class SshHost final : public Host {
 public:
  // `remote_command`: the path of `tandem` there. reserve_ports() and start() throw
  // UnavailableError when the agent does not answer within `time_limit`, and StartInterrupted when
  // a signal comes that ends a job.
  SshHost(std::string name, const std::string& ssh, const std::string& remote_command,
          const Signals& signals, std::chrono::milliseconds time_limit);
  ~SshHost() override;

  std::vector<int> reserve_ports(std::size_t count) override;
  void start(const std::vector<RankSpec>& ranks) override;
  void send_signal(int number) override;
  void add_polled(std::vector<pollfd>& polled) const override;
  void progress(RankEvents& events) override;

 private:
  // Never waits: what the connection does not take now, flush() sends later.
  void send(const std::string& line);
  void flush();
  // Calls `handle(line)` for the agent's lines.
  template <class Handle>
  void read_lines(const Handle& handle);
  // The agent's next line that begins with one of the letters, or is its hello; what comes before
  // is dropped, what behind kept for progress().
  // Throws UnavailableError when it does not come.
  std::string wait_for_answer(const std::string& letters);
  void handle(const std::string& line, RankEvents& events);

  std::string name_;
  const Signals& signals_;
  std::chrono::milliseconds time_limit_;
  pid_t process_ = -1;
  Descriptor input_;
  LineReader output_;
  std::string unsent_;
  std::string line_;                 // the agent's, as far as it has come
  std::vector<std::string> queued_;  // lines that came behind an answer
  bool told_ = false;                // that it is lost
};

inline constexpr const char* kAgentHello = "tandem-agent 1";

}  // namespace tandem::tools
