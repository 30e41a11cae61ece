#include "parallel/spawned_ranks.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <utility>

#include "core/bytes.h"
#include "core/status.h"
#include "tandem/parallel.h"

namespace tandem::parallel {
namespace {

constexpr std::size_t kLongestText = 32 << 10;  // fits in a pipe's buffer: write() never blocks

// A rank writes it when its function has ended; an error's text follows.
struct RankReport {
  std::int64_t time = 0;
  std::int32_t failed = 0;
  std::int32_t secondary = 0;
};

RankError current_error() {
  RankError error{.time = SpawnedRank::Clock::now(), .secondary = false, .text = ""};
  try {
    throw;
  } catch (const Error& thrown) {
    error.text = fmt::format("{}: {}", thrown.kind(), thrown.what());
    error.secondary = dynamic_cast<const AbortedError*>(&thrown) != nullptr ||
                      dynamic_cast<const UnavailableError*>(&thrown) != nullptr;
  } catch (const std::exception& thrown) {
    error.text = thrown.what();
  } catch (...) {
    error.text = "an exception of an unknown type";
  }
  return error;
}

void write_report(int pipe, const RankReport& report, const std::string& text) {
  const std::string bytes = std::string(plain_bytes(report)) + text.substr(0, kLongestText);
  // The write fails only if the parent is gone, and then this process is killed too.
  [[maybe_unused]] const ssize_t written = write(pipe, bytes.data(), bytes.size());
}

[[noreturn]] void run_child(int pipe, const std::function<void()>& body,
                            const std::function<void(const std::string&)>& report) {
  int code = 0;
  try {
    body();
    write_report(pipe, {}, "");
  } catch (...) {
    const RankError error = current_error();
    // First, because the other ranks' errors follow from this one.
    write_report(pipe, {error.time.time_since_epoch().count(), true, error.secondary}, error.text);
    report(error.text);
    code = 1;
  }
  std::cout.flush();
  std::fflush(nullptr);
  _exit(code);  // skips the parent's exit handlers
}

}  // namespace

SpawnedRank::SpawnedRank(int rank, const std::function<void()>& body,
                         const std::function<void(const std::string&)>& report)
    : rank_(rank) {
  int ends[2] = {-1, -1};
  if (pipe2(ends, O_CLOEXEC) != 0)
    fail<ResourceExhaustedError>("[spawn] cannot make a pipe: {}", std::strerror(errno));
  const pid_t parent = getpid();
  process_ = fork();
  if (process_ == 0) {
    close(ends[0]);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);  // the parent ended before prctl()
    run_child(ends[1], body, report);
  }
  const int error = errno;
  close(ends[1]);
  pipe_ = ends[0];
  if (process_ > 0) return;
  close_pipe();
  fail<ResourceExhaustedError>("[spawn] cannot start process {}: {}", rank, std::strerror(error));
}

SpawnedRank::SpawnedRank(SpawnedRank&& other) noexcept
    : rank_(other.rank_),
      process_(std::exchange(other.process_, -1)),
      pipe_(std::exchange(other.pipe_, -1)),
      status_(other.status_),
      stopped_(other.stopped_),
      ended_at_(other.ended_at_),
      error_(std::move(other.error_)) {}

SpawnedRank::~SpawnedRank() {
  if (running()) {
    kill(process_, SIGKILL);
    while (waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  close_pipe();
}

void SpawnedRank::poll() {
  if (!running()) return;
  int status = 0;
  const pid_t ended = waitpid(process_, &status, WNOHANG);
  if (ended == 0 || (ended < 0 && errno == EINTR)) return;
  process_ = -1;
  ended_at_ = Clock::now();
  const bool returned = read_report();
  // There is no status if the host ignores SIGCHLD or has reaped the process.
  status_ = ended > 0 ? status : W_EXITCODE(returned ? 0 : 1, 0);
  close_pipe();
}

void SpawnedRank::stop(int signal) {
  if (!running()) return;
  stopped_ = true;
  kill(process_, signal);
}

bool SpawnedRank::read_report() {
  std::string bytes(sizeof(RankReport) + kLongestText, '\0');
  // Non-blocking: a process that the rank has started may hold the pipe open.
  fcntl(pipe_, F_SETFL, O_NONBLOCK);
  const ssize_t count = read(pipe_, bytes.data(), bytes.size());
  if (count < static_cast<ssize_t>(sizeof(RankReport))) return false;
  bytes.resize(static_cast<std::size_t>(count));
  ByteReader in("[spawn] a report", bytes);
  const auto report = in.number<RankReport>();
  if (!report.failed) return true;
  error_ = RankError{.time = Clock::time_point(Clock::duration(report.time)),
                     .secondary = report.secondary != 0,
                     .text = std::string(in.take(in.left()))};
  return false;
}

void SpawnedRank::close_pipe() {
  if (pipe_ >= 0) close(std::exchange(pipe_, -1));
}

void SpawnedRank::throw_error() const {
  if (error_)
    throw ProcessRaisedError(
        fmt::format("[spawn] -- Process {} terminated with the following error: {}", rank_,
                    error_->text),
        rank_);
  if (WIFSIGNALED(status_)) {
    const int signal = WTERMSIG(status_);
    const char* name = sigabbrev_np(signal);
    throw ProcessExitedError(fmt::format("[spawn] process {} terminated with signal SIG{}", rank_,
                                         name ? name : std::to_string(signal)),
                             rank_, 128 + signal);
  }
  throw ProcessExitedError(
      fmt::format("[spawn] process {} terminated with exit code {}", rank_, WEXITSTATUS(status_)),
      rank_, WEXITSTATUS(status_));
}

}  // namespace tandem::parallel
