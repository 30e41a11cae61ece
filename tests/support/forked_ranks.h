// Tests with one process per rank.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <functional>
#include <thread>
#include <vector>

#include "support/waiting.h"

namespace tandem {

// The exit code of a process: 0, 1 for a failed expectation, 128 + a signal.
using ExitCodes = std::vector<int>;

// Runs body(rank) in one process per rank and waits for all. Processes that take longer than
// kPatience are killed, and the test fails. REQUIRES: this process has no other threads.
inline ExitCodes run_processes(int ranks, const std::function<void(int)>& body) {
  fflush(nullptr);
  std::vector<pid_t> children;
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      try {
        body(rank);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << " threw: " << error.what();
      }
      fflush(nullptr);
      _exit(::testing::Test::HasFailure() ? 1 : 0);
    }
    children.push_back(child);
  }
  ExitCodes codes(children.size(), -1);
  const auto deadline = std::chrono::steady_clock::now() + testing::kPatience;
  for (std::size_t left = children.size(); left > 0;) {
    for (std::size_t i = 0; i < children.size(); ++i) {
      int status = 0;
      if (codes[i] >= 0 || waitpid(children[i], &status, WNOHANG) != children[i]) continue;
      codes[i] = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
      --left;
    }
    if (left > 0 && std::chrono::steady_clock::now() > deadline) {
      ADD_FAILURE() << left << " of " << ranks << " processes did not end in time";
      for (std::size_t i = 0; i < children.size(); ++i)
        if (codes[i] < 0) kill(children[i], SIGKILL);
      for (std::size_t i = 0; i < children.size(); ++i)
        if (codes[i] < 0) waitpid(children[i], nullptr, 0);
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return codes;
}

}  // namespace tandem
