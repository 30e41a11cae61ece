// An overflow on one rank of a process group.
#include <gtest/gtest.h>

#include <limits>

#include "parallel/ddp_models.h"
#include "support/process_groups.h"
#include "tandem/amp.h"

namespace tandem {
namespace {

using testing::examples;
using testing::Examples;
using testing::expect_group;
using testing::loss_of;
using testing::perceptron;
using testing::Weights;
using testing::weights_of;

// Three steps; in the second the gradients of rank 2 are infinite. Every rank must skip this step
// alone and halve its scale.
void train(int rank, bool traced) {
  const parallel::DistributedDataParallel model(perceptron(5));
  auto optimizer = optimizers::SGD(0.1, model.parameters());
  amp::GradScaler scaler({.init_scale = 1024.0});
  const Examples data = examples(16), mine = data.rows(4 * rank, 4 * rank + 4);
  const auto step = [&](const Tensor& x, const Tensor& y, const Tensor& factor) {
    optimizer.zero_grad();
    Tensor loss;
    {
      const amp::autocast cast(bfloat16);
      loss = loss_of(tandem::cast(model(x, {.training = true}), float32), y) * factor;
    }
    scaler.scale(loss).backward();
    scaler.step(optimizer);
    scaler.update();
    return loss;
  };
  const auto replayed = function(step);
  const auto run = [&](double factor) {
    const Tensor by = full(Shape::scalar(), factor);
    static_cast<void>(traced ? replayed(mine.x, mine.y, by) : step(mine.x, mine.y, by));
    return weights_of(model.module());
  };
  const Weights before = run(1.0);
  const double factor = rank == 2 ? std::numeric_limits<double>::infinity() : 1.0;
  EXPECT_EQ(run(factor), before);
  EXPECT_EQ(scaler.get_scale(), 512.0);
  EXPECT_EQ(optimizer.iterations(), 1);
  EXPECT_NE(run(1.0), before);
  EXPECT_EQ(scaler.get_scale(), 512.0);
}

TEST(Overflow, OnOneRankOfFourSkipsTheStepOnAll) {
  for (bool traced : {false, true})
    expect_group({.size = 4}, [&](int rank) { train(rank, traced); });
}

}  // namespace
}  // namespace tandem
