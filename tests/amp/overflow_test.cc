// An overflow on one rank of a process group, of a Horovod job or of the workers of a strategy.
#include <gtest/gtest.h>

#include <fmt/ranges.h>

#include <functional>
#include <limits>
#include <string>

#include "parallel/ddp_models.h"
#include "support/hvd_ranks.h"
#include "support/process_groups.h"
#include "support/workers.h"
#include "tandem/amp.h"

namespace tandem::overflow_test {
namespace {

using namespace testing;

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

// Three steps of w -= 0.5 * (mean of x over the ranks); in the second, x is infinite on rank 2.
struct Line {
  Line(const std::function<optimizers::Optimizer(optimizers::Optimizer)>& wrap)
      : optimizer(wrap(optimizers::LossScaleOptimizer(optimizers::SGD(0.5, {weight})))) {}

  // The weight, the scale and the number of steps that were taken.
  std::string train(int rank, bool traced, double share) {
    const auto step = [&](const Tensor& x) {
      const Tensor loss = reduce_sum(weight.value() * x) * share;
      optimizer.minimize(loss, {weight});
      return loss;
    };
    const auto replayed = function(step);
    for (int i = 0; i < 3; ++i) {
      const bool overflows = i == 1 && rank == 2;
      const Tensor x = full({2}, overflows ? std::numeric_limits<double>::infinity() : 1.0);
      run([&] { static_cast<void>(traced ? replayed(x) : step(x)); });
    }
    return fmt::format("{} {} {}", weight.value().to_vector<float>(), optimizer.loss_scale(),
                       optimizer.iterations());
  }

  std::function<void(const std::function<void()>&)> run = [](const auto& step) { step(); };
  Variable weight = Variable(full({2}, 2.0));
  optimizers::Optimizer optimizer;
};
constexpr const char* kAfterTwoSteps = "[1, 1] 32768 2";

TEST(Overflow, OnOneHorovodRankSkipsTheStepOnAll) {
  for (bool traced : {false, true})
    testing::expect_hvd(4, [&](int rank) {
      Line line([](const auto& optimizer) { return hvd::DistributedOptimizer(optimizer); });
      EXPECT_EQ(line.train(rank, traced, 1.0), kAfterTwoSteps);
    });
}

TEST(Overflow, OnOneWorkerSkipsTheStepOnAll) {
  for (bool traced : {false, true}) {
    const auto results = testing::run_workers(4, [&](int worker) {
      const distribute::MultiWorkerMirroredStrategy strategy;
      const auto scope = strategy.scope();
      Line line([](const auto& optimizer) { return optimizer; });
      line.run = [&](const std::function<void()>& step) { strategy.run(step); };
      return line.train(worker, traced, 1.0 / strategy.num_replicas_in_sync());
    });
    for (const std::string& result : results) EXPECT_EQ(result, kAfterTwoSteps);
  }
}

}  // namespace
}  // namespace tandem::overflow_test
