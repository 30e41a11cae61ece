#include "core/available_cores.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <cstdlib>
#include <map>
#include <string>

#include "core/parallel.h"
#include "support/errors.h"
#include "support/files.h"

namespace tandem::available_cores_test {
namespace {

using testing::error_of;

// Each test is a process of its own, which has not asked for its cores yet.
void set(const std::map<std::string, std::string>& variables) {
  for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
}

class Quota : public ::testing::Test {
 protected:
  void write(const std::string& file, const std::string& text) {
    const std::filesystem::path path = folder / file;
    std::filesystem::create_directories(path.parent_path());
    testing::write_file(path, text);
  }
  std::optional<int> of(const std::string& groups) { return cores_of_quota(groups, folder.path()); }

  testing::TemporaryDirectory folder;
};

TEST_F(Quota, OfVersion2) {
  EXPECT_EQ(of("0::/a/b\n"), std::nullopt);
  write("a/b/cpu.max", "max 100000\n");
  EXPECT_EQ(of("0::/a/b\n"), std::nullopt);
  write("a/cpu.max", "350000 100000\n");
  EXPECT_EQ(of("0::/a/b\n"), 4);
  write("a/b/cpu.max", "50000 100000\n");
  EXPECT_EQ(of("0::/a/b\n"), 1);
  EXPECT_EQ(of("0::/a\n"), 4);
  // In a container, only the group of the process is mounted.
  write("cpu.max", "200000 100000");
  EXPECT_EQ(of("0::/docker/0123\n"), 2);
}

TEST_F(Quota, OfVersion1) {
  const std::string groups = "5:memory:/m\n3:cpu,cpuacct:/a\n0::/\n";
  EXPECT_EQ(of(groups), std::nullopt);
  write("cpu/a/cpu.cfs_quota_us", "-1\n");
  write("cpu/a/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(of(groups), std::nullopt);
  write("cpu/a/cpu.cfs_quota_us", "250000\n");
  EXPECT_EQ(of(groups), 3);
  write("cpu/cpu.cfs_quota_us", "100000\n");
  write("cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(of(groups), 1);
}

TEST_F(Quota, IgnoresWhatItDoesNotUnderstand) {
  for (const std::string text : {"", "x y", "100000", "100000 0", "-5 100000", "0 100000"}) {
    write("a/cpu.max", text);
    EXPECT_EQ(of("0::/a\n"), std::nullopt) << text;
  }
  EXPECT_EQ(of("no colons\n:\n\n"), std::nullopt);
}

TEST(AvailableCores, InvalidNumbersOfThreadsAreRefused) {
  for (const char* value : {"-1", "0", "abc", "1e3", "2,", "2,x", "2147483648", "2 3"}) {
    set({{"OMP_NUM_THREADS", value}});
    EXPECT_EQ(error_of<InvalidArgumentError>([] { available_cores(); }),
              std::string("[Environment] OMP_NUM_THREADS: expected positive integers, separated by "
                          "commas, got '") +
                  value + "'");
  }
  set({{"OMP_NUM_THREADS", " 1 , 2"}, {"OMP_THREAD_LIMIT", "1,2"}});
  EXPECT_EQ(error_of<InvalidArgumentError>([] { available_cores(); }),
            "[Environment] OMP_THREAD_LIMIT: expected a positive integer, got '1,2'");
  set({{"OMP_THREAD_LIMIT", "8"}});
  EXPECT_GE(available_cores(), 1);
}

int cores_of_host() { return static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)); }

TEST(AvailableCores, RanksOfOpenMpiShareTheHost) {
  unsetenv("OMP_NUM_THREADS");
  const int ranks = 2 * cores_of_host();
  set({{"OMPI_COMM_WORLD_LOCAL_SIZE", std::to_string(ranks)}, {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}});
  EXPECT_EQ(available_cores(), 1);
}

TEST(AvailableCores, RanksOfMpichShareTheHost) {
  unsetenv("OMP_NUM_THREADS");
  set({{"MPI_LOCALNRANKS", "0"}});
  EXPECT_NE(error_of<InvalidArgumentError>([] { available_cores(); }).find("MPI_LOCALNRANKS"),
            std::string::npos);
  set({{"MPI_LOCALNRANKS", std::to_string(2 * cores_of_host())}, {"MPI_LOCALRANKID", "0"}});
  EXPECT_EQ(available_cores(), 1);
}

TEST(AvailableCores, SharesDifferByAtMostOne) {
  for (const int cores : {1, 2, 7, 64, 1 << 20}) {
    for (const int sharers : {1, 3, 64, 1 << 14}) {
      int sum = 0;
      for (int sharer = 0; sharer < sharers; ++sharer) {
        const int share = share_of_cores(cores, sharer, sharers);
        EXPECT_GE(share, std::max(1, cores / sharers));
        EXPECT_LE(share, (cores + sharers - 1) / sharers);
        sum += share;
      }
      EXPECT_EQ(sum, std::max(cores, sharers)) << cores << " cores of " << sharers;
    }
  }
}

TEST(AvailableCores, AnExplicitNumberOfThreadsIsNotShared) {
  set({{"OMP_NUM_THREADS", "2"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "64"}});
  EXPECT_EQ(available_cores(), std::min(omp_get_max_threads(), cores_of_host()));
}

}  // namespace
}  // namespace tandem::available_cores_test
