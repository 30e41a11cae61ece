// The child processes of spawn(), as their parent sees them.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace tandem::parallel {

// The error that a rank writes to its pipe before it exits.
struct RankError {
  std::chrono::steady_clock::time_point time;
  bool secondary = false;  // may be a consequence of another rank's failure
  std::string text;
};

// A child process, and the pipe through which it reports its error.
class SpawnedRank {
 public:
  using Clock = std::chrono::steady_clock;

  // Forks and runs `body` in the child, which then exits. An exception of `body` goes to the parent
  // through the pipe, and to `report`, which the child calls.
  SpawnedRank(int rank, const std::function<void()>& body,
              const std::function<void(const std::string&)>& report);
  ~SpawnedRank();  // kills it
  SpawnedRank(SpawnedRank&& other) noexcept;
  SpawnedRank& operator=(SpawnedRank&&) = delete;
  SpawnedRank(const SpawnedRank&) = delete;

  int rank() const { return rank_; }
  int pipe() const { return pipe_; }
  bool running() const { return process_ > 0; }
  bool failed() const { return !running() && status_ != 0; }
  // Whether its failure may be a consequence of another rank's.
  bool secondary() const { return error_ ? error_->secondary : stopped_; }
  Clock::time_point failed_at() const { return error_ ? error_->time : ended_at_; }

  // Checks whether the process has ended, without waiting.
  void poll();
  // Sends `signal` because another rank has failed.
  void stop(int signal);
  // Throws ProcessRaisedError or ProcessExitedError. REQUIRES: failed().
  [[noreturn]] void throw_error() const;

 private:
  // Whether the function has returned; takes the error that it has thrown.
  bool read_report();
  void close_pipe();

  int rank_;
  pid_t process_ = -1;  // -1 once it has ended
  int pipe_ = -1;
  int status_ = 0;
  bool stopped_ = false;
  Clock::time_point ended_at_;
  std::optional<RankError> error_;
};

}  // namespace tandem::parallel
