// Tests whose ranks are launched by mpirun: each test runs itself again.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "comm/mpi/mpi_backend.h"
#include "support/files.h"
#include "support/forked_ranks.h"

namespace tandem {

inline bool started_by_mpirun() { return std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr; }

// Whether the backend and mpirun are available.
inline bool can_use_mpirun() {
  if (started_by_mpirun()) return true;
  const char* path = std::getenv("PATH");
  std::string folders = path ? path : "";
  bool found = false;
  for (std::size_t begin = 0, end; begin < folders.size() && !found; begin = end + 1) {
    end = std::min(folders.find(':', begin), folders.size());
    found = access((folders.substr(begin, end - begin) + "/mpirun").c_str(), X_OK) == 0;
  }
  return found && has_mpi();
}

// Where Open MPI puts its files. It makes a folder for all jobs of a user by default, and fails if
// another job makes or removes it at the same time.
constexpr const char* kSessionFolder = "OMPI_MCA_orte_tmpdir_base";

// Replaces this process by mpirun, which runs the calling test as each of `ranks` ranks. In those,
// started_by_mpirun() is true. `folder`: for Open MPI's files.
inline void become_mpirun(int ranks, const testing::TemporaryDirectory& folder,
                          const std::vector<std::string>& options = {}) {
  const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
  const std::string filter =
      std::string("--gtest_filter=") + test->test_suite_name() + "." + test->name();
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  const std::string count = std::to_string(ranks);
  // As root, mpirun requires two confirmations.
  setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
  setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
  setenv("TANDEM_CI_EXPECTS", "", 1);
  setenv(kSessionFolder, folder.path().c_str(), 1);
  // Daemons of several hosts that are namespaces of one would make the same shared memory at the
  // same time: of the topology and of PMIx's data.
  setenv("OMPI_MCA_rtc_hwloc_vmhole", "none", 1);
  setenv("PMIX_MCA_gds", "hash", 1);
  // Open MPI leaks memory, much of it from plug-ins that it has unloaded, so that suppressions
  // cannot name them.
  const char* sanitizer = std::getenv("ASAN_OPTIONS");
  setenv("ASAN_OPTIONS", ((sanitizer ? sanitizer : "") + std::string(":detect_leaks=0")).c_str(),
         1);
  std::vector<std::string> words = {"mpirun", "--oversubscribe", "--bind-to", "none", "-n", count};
  words.insert(words.end(), options.begin(), options.end());
  words.insert(words.end(), {program, filter});
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  // mpirun may write to a rank that has just ended.
  std::signal(SIGPIPE, SIG_IGN);
  execvp("mpirun", arguments.data());
  ADD_FAILURE() << "mpirun does not start";
}

// The exit code of mpirun: 0 if every rank passed.
inline int run_this_test_by_mpirun(int ranks, const std::vector<std::string>& options = {}) {
  const testing::TemporaryDirectory folder;
  return run_processes(1, [&](int) { become_mpirun(ranks, folder, options); }).front();
}

}  // namespace tandem
