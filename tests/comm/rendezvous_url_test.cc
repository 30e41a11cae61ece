// URLs and launchers' variables.
#include "comm/rendezvous/url.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "comm/rendezvous/cluster_environment.h"
#include "comm/rendezvous/rendezvous.h"
#include "support/errors.h"
#include "tandem/errors.h"

namespace tandem::rendezvous_url_test {
namespace {

std::string refusal(const std::string& url) {
  return testing::error_of<InvalidArgumentError>([&] { parse_rendezvous_url(url); });
}

TEST(RendezvousUrl, Parses) {
  using Scheme = RendezvousUrl::Scheme;
  RendezvousUrl url = parse_rendezvous_url("env://");
  EXPECT_EQ(url.scheme, Scheme::kEnv);
  EXPECT_FALSE(url.rank || url.world_size);
  url = parse_rendezvous_url("env://?world_size=4");
  EXPECT_EQ(url.world_size, 4);
  url = parse_rendezvous_url("tcp://gpu-1.example.org:65535?rank=3&world_size=8");
  EXPECT_EQ(url.scheme, Scheme::kTcp);
  EXPECT_EQ(url.host, "gpu-1.example.org");
  EXPECT_EQ(url.port, 65535);
  EXPECT_EQ(url.rank, 3);
  EXPECT_EQ(url.world_size, 8);
  EXPECT_FALSE(url.outside);
  url = parse_rendezvous_url("tcp://gpu-1:80?rank=3&server=outside&world_size=8");
  EXPECT_TRUE(url.outside);
  EXPECT_EQ(url.world_size, 8);
  url = parse_rendezvous_url("tcp://[::1]:80/");
  EXPECT_EQ(url.host, "::1");
  EXPECT_EQ(url.port, 80);
  url = parse_rendezvous_url("file:///tmp/a job?world_size=2&rank=0");
  EXPECT_EQ(url.scheme, Scheme::kFile);
  EXPECT_EQ(url.path, "/tmp/a job");
  EXPECT_EQ(url.rank, 0);
}

TEST(RendezvousUrl, RefusesWithTheMessagesOfTorch) {
  const std::string error = "[rendezvous] Error initializing tandem using ";
  EXPECT_EQ(refusal("mpi://"), "[rendezvous] No rendezvous handler for mpi://");
  EXPECT_EQ(refusal("tcp://host"), error + "tcp:// rendezvous: port number missing");
  EXPECT_EQ(refusal("tcp://host:"), error + "tcp:// rendezvous: port number missing");
  EXPECT_EQ(refusal("tcp://"), error + "tcp:// rendezvous: port number missing");
  EXPECT_EQ(refusal("tcp://:80"), error + "tcp:// rendezvous: host name missing");
  EXPECT_EQ(refusal("tcp://h:65536"),
            "[rendezvous] port must have value from 0 to 65535 but was 65536.");
  EXPECT_EQ(refusal("tcp://h:-1"), "[rendezvous] port must have value from 0 to 65535 but was -1.");
  EXPECT_EQ(refusal("tcp://h:8o"), "[rendezvous] port must have value from 0 to 65535 but was 8o.");
  EXPECT_EQ(refusal("tcp://[::1"), "[rendezvous] expected ']' after the address in '[::1'");
  EXPECT_EQ(refusal("file://"), error + "file:// rendezvous: path missing");
  EXPECT_EQ(refusal("file:///?rank=0"), error + "file:// rendezvous: path missing");
  EXPECT_EQ(refusal("file://host/path"),
            "[rendezvous] expected the path of a file on this machine, file:///PATH, got "
            "'file://host/path'");
  EXPECT_EQ(refusal("env://host"), "[rendezvous] expected nothing after env://, got 'host'");
  EXPECT_EQ(refusal("host:80"),
            "[rendezvous] expected env://, tcp://HOST:PORT or file:///PATH, got 'host:80'");
  EXPECT_EQ(refusal("env://?rank=-1"),
            "[rendezvous] rank: expected an integer in [0, 1000000], got '-1'");
  EXPECT_EQ(refusal("env://?world_size="),
            "[rendezvous] world_size: expected an integer in [0, 1000000], got ''");
  EXPECT_EQ(refusal("env://?rank=1&rank=2"), "[rendezvous] the parameter rank is given twice");
  EXPECT_EQ(refusal("env://?size=2"),
            "[rendezvous] expected the parameters rank, world_size and server, got 'size=2'");
}

class ClusterVariables : public ::testing::Test {
 protected:
  ClusterVariables() {
    for (const char* name :
         {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT",
          "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "TORCHELASTIC_USE_AGENT_STORE"})
      unsetenv(name);
  }
  static void set(const std::vector<std::pair<const char*, const char*>>& variables) {
    for (const auto& [name, value] : variables) setenv(name, value, 1);
  }
  static std::vector<std::uint16_t> ports(std::vector<std::uint16_t> list) { return list; }
};

TEST_F(ClusterVariables, AreEmptyWithoutALauncher) {
  const ClusterEnvironment found = cluster_environment();
  EXPECT_FALSE(found.rank || found.size || found.local_rank || found.local_size);
  EXPECT_EQ(found.master, "");
  EXPECT_TRUE(found.ports.empty());
}

TEST_F(ClusterVariables, ThoseOfTandemRunAndTorchrunAreRead) {
  set({{"RANK", "5"},
       {"WORLD_SIZE", "8"},
       {"LOCAL_RANK", "1"},
       {"LOCAL_WORLD_SIZE", "4"},
       {"MASTER_ADDR", "node7"},
       {"MASTER_PORT", "29500"}});
  ClusterEnvironment found = cluster_environment();
  EXPECT_EQ(found.rank, 5);
  EXPECT_EQ(found.size, 8);
  EXPECT_EQ(found.local_rank, 1);
  EXPECT_EQ(found.local_size, 4);
  EXPECT_EQ(found.master, "node7");
  EXPECT_EQ(found.ports, ports({29500}));
  // All ranks are on one host, so other hosts need no access, whatever the host's name.
  set({{"LOCAL_WORLD_SIZE", "8"}});
  EXPECT_EQ(cluster_environment().master, "127.0.0.1");
}

TEST_F(ClusterVariables, OtherPortsAreUsedBesideTorchrunsStore) {
  set({{"RANK", "0"},
       {"WORLD_SIZE", "2"},
       {"MASTER_ADDR", "node7"},
       {"MASTER_PORT", "29500"},
       {"TORCHELASTIC_USE_AGENT_STORE", "True"},
       {"TORCHELASTIC_RUN_ID", "a"},
       {"TORCHELASTIC_RESTART_COUNT", "0"}});
  const ClusterEnvironment found = cluster_environment();
  ASSERT_EQ(found.ports.size(), 8u);
  for (const std::uint16_t port : found.ports) {
    EXPECT_GE(port, 20'000);
    EXPECT_LT(port, 32'000);
  }
  EXPECT_EQ(cluster_environment().ports, found.ports);
  set({{"RANK", "1"}});
  EXPECT_EQ(cluster_environment().ports, found.ports);
  set({{"MASTER_PORT", "29501"}});
  EXPECT_NE(cluster_environment().ports, found.ports);
  EXPECT_NE(cluster_environment().job, found.job);
  set({{"TORCHELASTIC_USE_AGENT_STORE", "False"}});
  EXPECT_EQ(cluster_environment().ports, ports({29501}));
}

TEST_F(ClusterVariables, OpenMpisAreRead) {
  set({{"OMPI_COMM_WORLD_RANK", "2"},
       {"OMPI_COMM_WORLD_SIZE", "3"},
       {"OMPI_COMM_WORLD_LOCAL_RANK", "2"},
       {"OMPI_COMM_WORLD_LOCAL_SIZE", "3"},
       {"PMIX_NAMESPACE", "1234"}});
  ClusterEnvironment found = cluster_environment();
  EXPECT_EQ(found.rank, 2);
  EXPECT_EQ(found.size, 3);
  EXPECT_EQ(found.local_rank, 2);
  EXPECT_EQ(found.master, "127.0.0.1");
  EXPECT_EQ(found.ports, ports_of_job("mpi 1234"));
  // With several hosts, the host of rank 0 must be set.
  set({{"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}});
  EXPECT_EQ(cluster_environment().master, "");
  set({{"MASTER_ADDR", "node1"}, {"MASTER_PORT", "4000"}});
  found = cluster_environment();
  EXPECT_EQ(found.master, "node1");
  EXPECT_EQ(found.ports, ports({4000}));
}

TEST_F(ClusterVariables, SlurmsAreRead) {
  set({{"SLURM_PROCID", "3"},
       {"SLURM_NTASKS", "5"},
       {"SLURM_LOCALID", "1"},
       {"SLURM_JOB_ID", "77"},
       {"SLURM_STEP_ID", "0"},
       {"SLURM_NODEID", "1"},
       {"SLURM_STEP_NODELIST", "gpu[03-04,9]"},
       {"SLURM_STEP_TASKS_PER_NODE", "2(x2),1"}});
  const ClusterEnvironment found = cluster_environment();
  EXPECT_EQ(found.rank, 3);
  EXPECT_EQ(found.size, 5);
  EXPECT_EQ(found.local_rank, 1);
  EXPECT_EQ(found.local_size, 2);
  EXPECT_EQ(found.master, "gpu03");
  EXPECT_EQ(found.ports, ports_of_job("slurm 77 0"));
  // A launcher's variables take precedence over those of the batch job around it.
  set({{"RANK", "0"}, {"WORLD_SIZE", "2"}});
  EXPECT_EQ(cluster_environment().size, 2);
}

// A shell may still have the variables of an earlier job.
TEST_F(ClusterVariables, LaunchersThatDisagreeAreRefused) {
  const auto conflict = [] {
    return testing::any_error_of([] { cluster_environment().require_one_launcher(); });
  };
  set({{"RANK", "0"},
       {"WORLD_SIZE", "1"},
       {"OMPI_COMM_WORLD_RANK", "0"},
       {"OMPI_COMM_WORLD_SIZE", "2"}});
  EXPECT_EQ(conflict(),
            "InvalidArgumentError: [rendezvous] two launchers disagree: RANK=0 and WORLD_SIZE=1, "
            "but OMPI_COMM_WORLD_RANK=0 and OMPI_COMM_WORLD_SIZE=2. Unset RANK and WORLD_SIZE if "
            "an earlier job has left them in the shell; otherwise set LOCAL_WORLD_SIZE, too");
  EXPECT_EQ(testing::error_of<InvalidArgumentError>([] {
              rendezvous("env://");
            }).find("[rendezvous] two launchers disagree"),
            0u);
  set({{"WORLD_SIZE", "2"}});
  EXPECT_EQ(conflict(), "no error");
  set({{"RANK", "1"}});
  EXPECT_NE(conflict().find("RANK=1 and WORLD_SIZE=2"), std::string::npos);
  // torchrun inside of mpirun.
  set({{"WORLD_SIZE", "8"}, {"LOCAL_WORLD_SIZE", "4"}});
  EXPECT_EQ(conflict(), "no error");
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "LOCAL_WORLD_SIZE"}) unsetenv(name);
  set({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}, {"WORLD_SIZE", "4"}});
  EXPECT_NE(conflict().find("SLURM_PROCID=0 and SLURM_NTASKS=2"), std::string::npos);
  // The script of a batch job starts the ranks itself.
  set({{"WORLD_SIZE", "2"}});
  EXPECT_EQ(conflict(), "no error");
  set({{"SLURM_STEP_ID", "0"}});
  EXPECT_NE(conflict().find("RANK=1 and WORLD_SIZE=2"), std::string::npos);
}

TEST_F(ClusterVariables, TheAddressOfRankZeroMayBeAnIpv6AddressInBrackets) {
  set({{"MASTER_ADDR", "[::1]"}});
  EXPECT_EQ(cluster_environment().master, "::1");
}

TEST_F(ClusterVariables, InvalidOnesAreRefused) {
  const auto refusal_of = [] {
    try {
      cluster_environment();
    } catch (const InvalidArgumentError& error) {
      return std::string(error.what());
    }
    return std::string("none");
  };
  set({{"RANK", "x"}, {"WORLD_SIZE", "2"}});
  EXPECT_EQ(refusal_of(), "[Environment] RANK: expected an integer in [0, 1000000], got 'x'");
  set({{"RANK", "0"}, {"WORLD_SIZE", "0"}});
  EXPECT_EQ(refusal_of(), "[Environment] WORLD_SIZE: expected an integer in [1, 1000000], got '0'");
  set({{"WORLD_SIZE", "2"}, {"MASTER_PORT", "70000"}});
  EXPECT_EQ(refusal_of(), "[rendezvous] port must have value from 0 to 65535 but was 70000.");
  set({{"MASTER_PORT", " 29500"}});
  EXPECT_EQ(refusal_of(),
            "[Environment] MASTER_PORT: expected an integer in [0, 65535], got ' 29500'");
}

TEST(Slurm, HostsAndTasks) {
  EXPECT_EQ(first_slurm_host("node1"), "node1");
  EXPECT_EQ(first_slurm_host("node1,node2"), "node1");
  EXPECT_EQ(first_slurm_host("gpu[03-05,9],login"), "gpu03");
  EXPECT_EQ(first_slurm_host("gpu[7,9]"), "gpu7");
  EXPECT_EQ(first_slurm_host("gpu[7"), "");
  EXPECT_EQ(first_slurm_host(""), "");
  EXPECT_EQ(slurm_tasks_of("2(x3),1", 2), 2);
  EXPECT_EQ(slurm_tasks_of("2(x3),1", 3), 1);
  EXPECT_EQ(slurm_tasks_of("2(x3),1", 4), std::nullopt);
  EXPECT_EQ(slurm_tasks_of("4", 0), 4);
  EXPECT_EQ(slurm_tasks_of("4(x", 0), std::nullopt);
  EXPECT_EQ(slurm_tasks_of("many", 0), std::nullopt);
  EXPECT_EQ(slurm_tasks_of("", 0), std::nullopt);
}

TEST(PortsOfAJob, AreDifferentPorts) {
  for (const char* job : {"a", "b", "slurm 77 0", ""}) {
    std::vector<std::uint16_t> ports = ports_of_job(job);
    std::sort(ports.begin(), ports.end());
    EXPECT_EQ(std::unique(ports.begin(), ports.end()), ports.end());
  }
}

}  // namespace
}  // namespace tandem::rendezvous_url_test
