#include "core/shared_cores.h"

#include <time.h>

#include <algorithm>
#include <cstdio>

#include "core/env.h"

namespace tandem {
namespace {

constexpr std::int64_t kLookMs = 50;
constexpr std::int64_t kFirstPauseMs = 1'000, kLongestPauseMs = 8'000;

std::int64_t milliseconds_now() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return now.tv_sec * 1'000 + now.tv_nsec / 1'000'000;
}

// Zeros where the kernel does not count them.
SharedCores::Times times_of_team(int team) {
  std::int64_t running_ns = 0, waiting_ns = 0;
#pragma omp parallel num_threads(team) reduction(+ : running_ns, waiting_ns)
  if (std::FILE* file = std::fopen("/proc/thread-self/schedstat", "re")) {
    long long running = 0, waiting = 0;
    if (std::fscanf(file, "%lld %lld", &running, &waiting) == 2) {
      running_ns = running;
      waiting_ns = waiting;
    }
    std::fclose(file);
  }
  return {.running_ms = running_ns / 1'000'000, .waiting_ms = waiting_ns / 1'000'000};
}

}  // namespace

void SharedCores::update(int team, std::int64_t now_ms, const std::function<Times()>& read) {
  next_look_ = now_ms + kLookMs;
  if (team != team_) {
    others_ = 0;
    team_ = team;
    begin_.reset();
    return;
  }
  const Times times = read();
  if (others_ > 0 || !begin_) {
    if (others_ > 0) resumed_ = now_ms;
    others_ = 0;
    begin_ = times;
    return;
  }
  const std::int64_t waiting = times.waiting_ms - begin_->waiting_ms;
  const std::int64_t all = times.running_ms - begin_->running_ms + waiting;
  if (all < kLookMs) return;
  begin_ = times;
  // A thread that shares its core with another program waits for half of the time.
  const double shared = 2.0 * static_cast<double>(waiting * team) / static_cast<double>(all);
  others_ = std::min(static_cast<int>(shared + 0.25), team - 1);
  if (others_ <= 0) return;
  // Soon after the last time: it was not over.
  pause_ =
      now_ms - resumed_ < kFirstPauseMs ? std::min(2 * pause_, kLongestPauseMs) : kFirstPauseMs;
  next_look_ = now_ms + pause_;
}

int cores_left_to_others(SharedCores& cores, int team) {
  static const bool decides = !env_string("OMP_WAIT_POLICY") && !env_string("GOMP_SPINCOUNT");
  if (!decides) return 0;
  if (const std::int64_t now = milliseconds_now(); cores.is_due(now))
    cores.update(team, now, [team] { return times_of_team(team); });
  return std::min(cores.others(), team - 1);
}

}  // namespace tandem
