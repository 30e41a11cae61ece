// Workers of TF_CONFIG that meet at a server outside of them.
#include <gtest/gtest.h>

#include <cstdlib>

#include "support/waiting.h"
#include "support/workers.h"
#include "tandem/tandem.h"

namespace tandem::multi_worker_server_test {
namespace {

using distribute::MultiWorkerMirroredStrategy;
using testing::ChildProcess;

// The sum over the workers of (worker + 1).
std::string sum_over_workers() {
  const MultiWorkerMirroredStrategy strategy({.timeout = testing::kFarAway, .devices = {"/cpu:0"}});
  const auto values = strategy.run([&] { return full({}, strategy.worker() + 1.0); });
  return std::to_string(strategy.reduce(ReduceOp::kSum, values).item<float>());
}

TEST(MultiWorkerServer, WorkersMeetThere) {
  const std::uint16_t port = testing::free_port();
  ChildProcess server([port] {
    comm::RendezvousServer server({.port = port, .ranks = 2});
    server.wait(testing::kFarAway);
    return std::string("over");
  });
  setenv("TANDEM_RENDEZVOUS", ("127.0.0.1:" + std::to_string(port)).c_str(), 1);
  std::vector<ChildProcess> workers;
  for (const char* index : {"0", "1"})
    workers.emplace_back([index] {
      // Addresses that are not this machine's: no worker listens at its own.
      setenv("TF_CONFIG",
             (R"({"cluster":{"worker":["192.0.2.1:9","192.0.2.2:9"]},"task":{"type":"worker",)" +
              std::string(R"("index":)") + index + "}}")
                 .c_str(),
             1);
      return sum_over_workers();
    });
  for (ChildProcess& worker : workers) EXPECT_EQ(worker.result(), std::to_string(3.0f));
  EXPECT_EQ(server.result(), "over");
}

// For instance `tandem run --workers 2 --evaluator`.
TEST(MultiWorkerServer, IsNotUsedIfItServesOtherTasksToo) {
  setenv("TANDEM_RENDEZVOUS", "192.0.2.1:9", 1);
  setenv("WORLD_SIZE", "3", 1);
  for (const std::string& result : testing::run_workers(2, [](int) { return sum_over_workers(); }))
    EXPECT_EQ(result, std::to_string(3.0f));
}

}  // namespace
}  // namespace tandem::multi_worker_server_test
