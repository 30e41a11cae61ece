// The second names of processes mean the same as the first.
#include "support/hvd_ranks.h"
#include "support/tensors.h"
#include "tandem/tandem.h"

namespace tandem::process_names_test {
namespace {

static_assert(ReduceOp::SUM == ReduceOp::kSum && ReduceOp::MEAN == ReduceOp::kMean &&
              ReduceOp::AVG == ReduceOp::kMean && ReduceOp::MIN == ReduceOp::kMin &&
              ReduceOp::MAX == ReduceOp::kMax && ReduceOp::PRODUCT == ReduceOp::kProduct);
static_assert(std::is_same_v<distributed::ReduceOp, ReduceOp> &&
              std::is_same_v<distribute::ReduceOp, ReduceOp>);
static_assert(horovod::Average == hvd::kAverage && hvd::Sum == hvd::kSum &&
              hvd::Adasum == hvd::kAdasum && hvd::Min == hvd::kMin && hvd::Max == hvd::kMax &&
              hvd::Product == hvd::kProduct);
static_assert(hvd::Compression::none == hvd::Compression::kNone &&
              hvd::Compression::fp16 == hvd::Compression::kFP16 &&
              hvd::Compression::bf16 == hvd::Compression::kBF16);
static_assert(
    std::is_same_v<nn::parallel::DistributedDataParallel, parallel::DistributedDataParallel> &&
    std::is_same_v<nn::DataParallel, parallel::DataParallel>);
static_assert(std::is_same_v<distribute::experimental::MultiWorkerMirroredStrategy,
                             distribute::MultiWorkerMirroredStrategy>);

TEST(ProcessNames, RanksAndMessages) {
  const int port = testing::free_port();
  const ExitCodes codes = run_processes(2, [&](int rank) {
    testing::set_rank(rank, 2, port);
    distributed::init_process_group();
    EXPECT_EQ(distributed::rank(), rank);
    EXPECT_EQ(distributed::size(), 2);
    EXPECT_TRUE(distributed::is_available());
    if (rank == 0) {
      distributed::isend(constant({7.0f}), 1)->wait();
    } else {
      EXPECT_EQ(distributed::irecv({1}, 0)->result().item<float>(), 7.0f);
    }
    distributed::barrier();
    distributed::destroy_process_group();
  });
  EXPECT_EQ(codes, (ExitCodes{0, 0}));
}

TEST(ProcessNames, AllreduceTakesANameAndAnOperation) {
  testing::expect_hvd(2, [](int rank) {
    const Tensor x = constant({rank + 1.0f});
    EXPECT_EQ(hvd::allreduce(x, "sum", hvd::Sum).item<float>(), 3.0f);
    EXPECT_EQ(hvd::synchronize(hvd::allreduce_async(x, "max", hvd::Max)).item<float>(), 2.0f);
    EXPECT_EQ(hvd::allreduce(x, "mean").item<float>(), 1.5f);
  });
}

}  // namespace
}  // namespace tandem::process_names_test
