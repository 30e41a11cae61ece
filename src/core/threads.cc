#include "core/threads.h"

#include <pthread.h>
#include <sys/resource.h>

#include <atomic>
#include <system_error>

#include "core/status.h"

namespace tandem {
namespace {

constinit std::atomic<int> fork_count = 0;
const bool counts_forks = pthread_atfork(nullptr, nullptr, [] { ++fork_count; }) == 0;

}  // namespace

std::thread start_thread(std::function<void()> run) {
  try {
    return std::thread(std::move(run));
  } catch (const std::system_error& error) {
    rlimit limit{};
    getrlimit(RLIMIT_NPROC, &limit);
    const std::string most =
        limit.rlim_cur == RLIM_INFINITY ? "unlimited" : std::to_string(limit.rlim_cur);
    fail<ResourceExhaustedError>(
        "[threads] cannot start a thread: {}. Limits are the user's number of processes and "
        "threads "
        "(ulimit -u: {}), that of the control group (pids.max), and the memory for stacks (ulimit "
        "-v, -s)",
        error.code().message(), most);
  }
}

int forks() { return fork_count.load(std::memory_order_relaxed); }

void OwnProcess::join(std::thread& thread) const {
  if (is_this())
    thread.join();
  else
    new std::thread(std::move(thread));  // neither joined nor detached: the C library has lost it
}

void OwnProcess::refuse(std::string_view what) {
  fail<FailedPreconditionError>(
      "[{}] this process was forked after its parent had made it, and has none of its threads: "
      "make "
      "it after the fork",
      what);
}

}  // namespace tandem
