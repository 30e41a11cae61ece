#include <poll.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <iterator>

#include "comm/rendezvous/handshake.h"
#include "comm/rendezvous/socket.h"
#include "core/available_cores.h"
#include "core/env.h"
#include "core/parallel.h"
#include "core/status.h"
#include "group/process_group_impl.h"
#include "parallel/spawned_ranks.h"
#include "tandem/parallel.h"

namespace tandem::parallel {
namespace {

using std::chrono::milliseconds;

constexpr auto kPollInterval = milliseconds(10);
// How long to wait for the cause before reporting an error that may be a consequence of another
// rank's.
constexpr auto kCauseDelay = milliseconds(1000);

int count_threads() {
  const std::filesystem::directory_iterator threads("/proc/self/task");
  int count = static_cast<int>(std::distance(begin(threads), end(threads)));
#if defined(__SANITIZE_THREAD__)
  --count;  // the sanitizer's own thread, which a forked process starts anew
#endif
  return count;
}

// fork() copies only the calling thread; locks that other threads hold would stay locked.
void require_one_thread() {
  if (const int threads = count_threads(); threads > 1)
    fail<FailedPreconditionError>(
        "[spawn] expected a process with a single thread, got {} threads: call spawn() before "
        "operations, devices or init_process_group() start threads",
        threads);
}

std::string new_token() {
  std::string token;
  for (const char byte : random_bytes(16))
    token += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return token;
}

// Sets the environment variables of torchrun.
void set_environment(int rank, int size, std::uint16_t port, const std::string& token) {
  const auto set = [](const char* name, const std::string& value) {
    setenv(name, value.c_str(), 1);
  };
  set("RANK", std::to_string(rank));
  set("LOCAL_RANK", std::to_string(rank));
  set("WORLD_SIZE", std::to_string(size));
  set("LOCAL_WORLD_SIZE", std::to_string(size));
  set("MASTER_ADDR", "127.0.0.1");
  set("MASTER_PORT", std::to_string(port));
  set("TANDEM_JOB_TOKEN", token);
  unsetenv("TANDEM_RENDEZVOUS");  // it belongs to the job that this process may be a rank of
}

void share_out_cores(int rank, int size) {
  if (env_string("OMP_NUM_THREADS")) return;  // set by the user, per process
  limit_available_cores(share_of_cores(available_cores(), rank, size));
}

class SpawnedRanks {
 public:
  explicit SpawnedRanks(const SpawnOptions& options) : options_(options) {}

  void start(const std::function<void(int, int)>& fn) {
    const Socket reserved = reserve_port("127.0.0.1");
    const std::uint16_t port = port_of(reserved);
    const std::string token = new_token();
    const int size = options_.nprocs;
    const auto report = [](const std::string& text) { comm::detail::report_failure(text); };
    for (int rank = 0; rank < size; ++rank)
      ranks_.emplace_back(
          rank,
          [&] {
            share_out_cores(rank, size);
            set_environment(rank, size, port, token);
            fn(rank, size);
          },
          report);
    wait();
  }

 private:
  using Clock = SpawnedRank::Clock;

  void wait() {
    std::optional<Clock::time_point> suspicion, stopping;
    for (bool killed = false;;) {
      for (SpawnedRank& rank : ranks_) rank.poll();
      if (none_running()) break;
      const auto now = Clock::now();
      if (!stopping && any_failed()) {
        if (!suspicion) suspicion = now;
        if (cause_is_known() || now - *suspicion >= kCauseDelay) {
          stopping = now;
          stop_all(SIGTERM);
        }
      }
      if (stopping && !killed && now - *stopping >= options_.grace) {
        killed = true;
        stop_all(SIGKILL);
      }
      sleep();
    }
    if (any_failed()) first_failure().throw_error();
  }

  bool none_running() const {
    return std::none_of(ranks_.begin(), ranks_.end(), [](const auto& r) { return r.running(); });
  }
  bool any_failed() const {
    return std::any_of(ranks_.begin(), ranks_.end(), [](const auto& r) { return r.failed(); });
  }
  bool cause_is_known() const {
    return std::any_of(ranks_.begin(), ranks_.end(),
                       [](const auto& r) { return r.failed() && !r.secondary(); });
  }
  void stop_all(int signal) {
    for (SpawnedRank& rank : ranks_) rank.stop(signal);
  }
  // Sleeps until a rank exits, at most kPollInterval.
  void sleep() const {
    std::vector<pollfd> pipes;
    for (const SpawnedRank& rank : ranks_)
      if (rank.running()) pipes.push_back({rank.pipe(), 0, 0});  // only POLLHUP
    ::poll(pipes.data(), pipes.size(), static_cast<int>(kPollInterval.count()));
  }

  const SpawnedRank& first_failure() const {
    const SpawnedRank* first = nullptr;
    for (const SpawnedRank& rank : ranks_) {
      if (!rank.failed()) continue;
      if (!first || std::pair(rank.secondary(), rank.failed_at()) <
                        std::pair(first->secondary(), first->failed_at()))
        first = &rank;
    }
    return *first;
  }

  const SpawnOptions options_;
  std::vector<SpawnedRank> ranks_;
};

}  // namespace

void detail::expect_args(const SpawnOptions& options, std::size_t count) {
  if (options.args.size() != count)
    fail<InvalidArgumentError>("[spawn] the function takes {} numbers after the rank, got {} args",
                               count, options.args.size());
}

void spawn(const std::function<void(int rank, int world_size)>& fn, const SpawnOptions& options) {
  if (options.nprocs < 1)
    fail<InvalidArgumentError>("[spawn] expected nprocs of at least 1, got {}", options.nprocs);
  if (!fn) throw InvalidArgumentError("[spawn] expected a function, got an empty one");
  if (!options.join)
    throw UnimplementedError("[spawn] expected join = true: spawn() waits for the processes");
  if (!options.args.empty()) detail::expect_args(options, 1);
  require_one_thread();
  std::cout.flush();
  std::fflush(nullptr);  // else each child would write what is buffered
  if (options.args.empty())
    SpawnedRanks(options).start(fn);
  else
    SpawnedRanks(options).start([&](int rank, int) { fn(rank, options.args[0]); });
}

}  // namespace tandem::parallel
