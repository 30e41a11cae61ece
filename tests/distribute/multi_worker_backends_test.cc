// Training over several processes with Gloo or MPI equals training in one process.
#include <cstdlib>

#include "comm/gloo/gloo_backend.h"
#include "core/parallel.h"
#include "distribute/multi_worker_training.h"
#include "support/expects.h"
#include "support/mpirun.h"

namespace tandem::multi_worker_backends_test {
namespace {

using distribute::Communication;
using distribute::MultiWorkerMirroredStrategy;
using testing::Config;
using testing::expect_near;
using testing::numbers_of;
using testing::train;
using testing::train_alone;
using testing::train_in;

// The results are bitwise equal to those with shared memory, because all backends sum in the
// order of the workers.
TEST(MultiWorkerOverGloo, FitEqualsOneProcess) {
  TANDEM_REQUIRE(has_gloo(), "gloo");
  for (bool eagerly : {false, true}) {
    const Config config{.run_eagerly = eagerly, .communication = Communication::kGloo};
    Config by_shm = config;
    by_shm.communication = Communication::kShm;
    const std::vector<double> expected = train_alone(config);
    ASSERT_GT(expected.size(), 100u);
    for (int workers : {2, 3}) {
      const std::vector<std::string> results = train_in(workers, config);
      for (const std::string& result : results) EXPECT_EQ(result, results[0]) << workers;
      expect_near(results[0], expected, std::to_string(workers) + " workers");
      EXPECT_EQ(train_in(workers, by_shm), results);
    }
  }
}

TEST(MultiWorkerOverMpi, FitEqualsOneProcess) {
  TANDEM_REQUIRE(can_use_mpirun(), "mpi");
  if (!started_by_mpirun()) {
    for (int workers : {2, 3}) EXPECT_EQ(run_this_test_by_mpirun(workers), 0);
    return;
  }
  const ThreadBudget one(1);
  const auto rank = static_cast<std::uint64_t>(std::atoi(std::getenv("OMPI_COMM_WORLD_RANK")));
  for (bool eagerly : {false, true}) {
    const Config config{.run_eagerly = eagerly, .communication = Communication::kMpi};
    const auto together = [&] {
      random::set_seed(rank);  // all workers start from the chief's weights
      return train(MultiWorkerMirroredStrategy({.communication_options = {config.communication},
                                                .timeout = testing::kFarAway}),
                   config);
    };
    const std::string result = together();
    EXPECT_EQ(together(), result);
    random::set_seed(0);
    expect_near(result, numbers_of(train(distribute::DefaultStrategy(), config)), "over MPI");
  }
}

}  // namespace
}  // namespace tandem::multi_worker_backends_test
