// Jobs of several processes.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "comm/rendezvous/rendezvous.h"
#include "comm/store.h"
#include "support/errors.h"
#include "support/files.h"
#include "support/processes.h"
#include "support/waiting.h"

namespace tandem::testing {

inline Clock::time_point in(std::chrono::milliseconds time) { return Clock::now() + time; }

// Every rank publishes a message and reads the others'. Returns "01.." if all succeed.
inline std::string talk(Job& job) {
  job.store()->set(fmt::format("word {}", job.rank()), std::to_string(job.rank()));
  std::string words;
  for (int rank = 0; rank < job.size(); ++rank)
    words += job.store()->get(fmt::format("word {}", rank), in(kFarAway));
  return words;
}
inline std::string talk_and_leave(Job& job) {
  std::string words = talk(job);
  job.shut_down();
  return words;
}

// Waits until a rank has failed, and throws the membership's error.
[[noreturn]] inline void wait_for_failure(const Membership& membership) {
  if (eventually([&] { return membership.failed(); })) membership.throw_failure();
  throw std::runtime_error("no rank has failed");
}

// The ranks of a job, one process each.
inline std::vector<ChildProcess> start(int size, const std::function<std::string(int rank)>& body) {
  std::vector<ChildProcess> ranks;
  for (int rank = 0; rank < size; ++rank) ranks.emplace_back([&, rank] { return body(rank); });
  return ranks;
}

inline std::string host_name() {
  char name[256] = {};
  gethostname(name, sizeof(name) - 1);
  return name;
}

// A rank's name in the others' errors.
inline std::string named(int rank, pid_t process) {
  return fmt::format("rank {} (process {} on {})", rank, process, host_name());
}

class Rendezvous : public ::testing::Test {
 protected:
  Rendezvous() {
    for (const char* name :
         {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
          "TANDEM_JOB_TOKEN", "TANDEM_RENDEZVOUS", "TORCHELASTIC_USE_AGENT_STORE"})
      unsetenv(name);
  }
  std::string tcp(int rank, int size) const {
    return fmt::format("tcp://127.0.0.1:{}?rank={}&world_size={}", port_, rank, size);
  }
  // For a server at the same port that is not one of the ranks.
  std::string outside(int rank, int size) const { return tcp(rank, size) + "&server=outside"; }
  std::string file(int rank, int size) const {
    return fmt::format("file://{}?rank={}&world_size={}", path().string(), rank, size);
  }
  std::filesystem::path path() const { return folder_ / "job"; }

  const std::uint16_t port_ = free_port();
  const TemporaryDirectory folder_;
};

// Processes that are limited to a few open files and sockets.
class FewDescriptors : public Rendezvous {
 protected:
  void SetUp() override {
#ifdef __SANITIZE_ADDRESS__
    GTEST_SKIP() << "a sanitizer of undefined behaviour wants a pipe of its own to look at objects";
#endif
  }
  static void limit(rlim_t soft, rlim_t hard) {
    const rlimit limit = {soft, hard};
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  }
};

// The error of a rendezvous in this process.
inline std::string refusal(const std::string& url, const RendezvousOptions& options = {}) {
  return any_error_of([&] { rendezvous(url, options); });
}

}  // namespace tandem::testing
