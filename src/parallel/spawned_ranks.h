// The processes of one spawn(), seen from the one that started them.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace tandem::parallel {

// What a rank that threw has written to its pipe before it ended.
struct RankError {
  std::chrono::steady_clock::time_point time;
  bool echo = false;  // another rank's failure may be the cause
  std::string text;
};

// A child process and the pipe that it tells its error through.
class SpawnedRank {
 public:
  using Clock = std::chrono::steady_clock;

  // Forks. `body` runs in the child, which ends with it: an exception that it throws is told to
  // this process, and to `told`.
  SpawnedRank(int rank, const std::function<void()>& body,
              const std::function<void(const std::string&)>& told);
  ~SpawnedRank();  // kills it
  SpawnedRank(SpawnedRank&& other) noexcept;
  SpawnedRank& operator=(SpawnedRank&&) = delete;
  SpawnedRank(const SpawnedRank&) = delete;

  int rank() const { return rank_; }
  int pipe() const { return pipe_; }
  bool running() const { return process_ > 0; }
  bool failed() const { return !running() && status_ != 0; }
  // Whether another rank's failure may be the cause.
  bool echo() const { return error_ ? error_->echo : stopped_; }
  Clock::time_point failed_at() const { return error_ ? error_->time : ended_at_; }

  // Looks whether it has ended, without waiting.
  void poll();
  // Another rank has failed: this one is to end.
  void stop(int signal);
  // Throws ProcessRaisedError or ProcessExitedError. REQUIRES: failed().
  [[noreturn]] void throw_error() const;

 private:
  void read_error();
  void close_pipe();

  int rank_;
  pid_t process_ = -1;  // -1: has ended
  int pipe_ = -1;
  int status_ = 0;
  bool stopped_ = false;
  Clock::time_point ended_at_;
  std::optional<RankError> error_;
};

}  // namespace tandem::parallel
