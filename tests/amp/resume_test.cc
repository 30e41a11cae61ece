// Training in float16 with a GradScaler on several ranks resumes with the state of the scale.
#include <gtest/gtest.h>

#include "parallel/ddp_models.h"
#include "support/files.h"
#include "support/process_groups.h"
#include "tandem/amp.h"
#include "tandem/checkpoint.h"

namespace tandem::resume_test {
namespace {

using namespace testing;

// A rank's training. Its first scale overflows, so that steps are skipped.
struct Training {
  parallel::DistributedDataParallel model{perceptron(5)};
  optimizers::Optimizer optimizer = optimizers::Adam(0.01, model.parameters());
  amp::GradScaler scaler{{.init_scale = 16777216.0, .growth_interval = 3}};

  void step(const Examples& batch) {
    optimizer.zero_grad();
    Tensor loss;
    {
      const amp::autocast cast(float16);
      loss = loss_of(tandem::cast(model(batch.x, {.training = true}), float32), batch.y);
    }
    scaler.scale(loss).backward();
    scaler.step(optimizer);
    scaler.update();
  }
  void steps(int first, int last, int rank) {
    const Examples data = examples(96);
    for (int i = first; i < last; ++i) {
      const std::int64_t begin = 8 * i + 4 * rank;
      step(data.rows(begin, begin + 4));
    }
  }
  Checkpoint checkpoint() {
    return Checkpoint({{"model", model.module().variables()}, {"optimizer", optimizer}});
  }
};

TEST(ResumeInFloat16, ADdpRankContinuesWithTheScaleAndTheBits) {
  expect_group({.size = 2}, [](int rank) {
    const TemporaryDirectory folder;  // of this rank
    Training whole, begun, resumed;
    whole.steps(0, 12, rank);

    begun.steps(0, 7, rank);
    begun.checkpoint().save(folder / "c");
    const auto scale = begun.scaler.state_dict();
    EXPECT_LT(begun.scaler.get_scale(), 16777216.0) << "no step has overflowed";
    EXPECT_LT(begun.optimizer.iterations(), 7);

    resumed.checkpoint().restore(folder / "c");
    resumed.scaler.load_state_dict(scale);
    resumed.steps(7, 12, rank);
    EXPECT_EQ(weights_of(resumed.model.module()), weights_of(whole.model.module()));
    EXPECT_EQ(resumed.scaler.get_scale(), whole.scaler.get_scale());
    EXPECT_EQ(resumed.optimizer.iterations(), whole.optimizer.iterations());
  });
}

}  // namespace
}  // namespace tandem::resume_test
