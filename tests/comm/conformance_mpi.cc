// The conformance suite between processes of mpirun.
#include <string>
#include <thread>

#include "comm/conformance.h"
#include "comm/process/process_communicator.h"
#include "core/parallel.h"
#include "device/device_manager.h"
#include "support/mpirun.h"

namespace tandem::conformance_mpi {
namespace {

// If there are several groups, each runs on a thread of its own.
void run_groups(int ranks, int groups, const std::function<void(Communicator&, int)>& body) {
  if (!started_by_mpirun()) {
    EXPECT_EQ(run_this_test_by_mpirun(ranks), 0);
    return;
  }
  DeviceImpl& device = *DeviceManager::get().devices(DeviceType::kCpu, "test").front();
  const auto run = [&](std::unique_ptr<Backend> backend, int number) {
    const ThreadBudget one(1);
    body(*make_process_communicator(std::move(backend), device,
                                    {.time_limit = std::chrono::minutes(5)}),
         number);
  };
  std::vector<std::unique_ptr<Backend>> backends;
  for (int number = 0; number < groups; ++number)
    backends.push_back(make_mpi_backend({.size = ranks, .time_limit = std::chrono::minutes(5)}));
  std::vector<std::thread> others;
  for (int number = 1; number < groups; ++number)
    others.emplace_back(
        [&, number] { run(std::move(backends[static_cast<std::size_t>(number)]), number); });
  run(std::move(backends.front()), 0);
  for (std::thread& other : others) other.join();
}

TestBackend mpi() { return {.name = "mpi", .run = run_groups, .available = can_use_mpirun}; }

INSTANTIATE_TEST_SUITE_P(Mpi, Conformance,
                         ::testing::Combine(::testing::Values(mpi()), ::testing::Values(2, 3, 4)),
                         name_of_ranks);

}  // namespace
}  // namespace tandem::conformance_mpi
