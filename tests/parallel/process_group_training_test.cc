// Manual training over a process group, whose collectives reduce the gradients.
#include <gtest/gtest.h>

#include "parallel/ddp_models.h"
#include "support/process_groups.h"

namespace tandem::process_group_training_test {
namespace {

using testing::Examples;
using testing::expect_group;
using testing::expect_near;
using testing::Weights;

// 52 steps in epochs of 27 examples, in batches of 8, 8, 8 and 3.
constexpr int kSteps = 52;
constexpr std::int64_t kExamples = 27, kBatch = 8;

// Training in one process without a group.
Weights train(int rank, int ranks, bool traced) {
  const Examples data = testing::examples(kExamples);
  const Sequential model = testing::perceptron(static_cast<std::uint64_t>(5 + rank));
  const std::vector<Variable> variables = model.trainable_variables();
  if (ranks > 0)
    for (Variable variable : variables) variable.assign(comm::broadcast(variable.value(), 0));
  auto optimizer = optimizers::SGD({.learning_rate = 0.1, .momentum = 0.9}, variables);
  const auto step = [&](const Tensor& x, const Tensor& y, std::int64_t of_all, double weight) {
    GradientTape tape;
    const Tensor loss = nn::compute_average_loss(nn::sparse_softmax_cross_entropy(y, model(x)),
                                                 {.global_batch_size = of_all}) *
                        weight;
    std::vector<Tensor> gradients = tape.gradient(loss, variables);
    if (ranks > 0)
      for (Tensor& gradient : gradients) gradient = comm::all_reduce(gradient);
    optimizer.apply_gradients(gradients, variables);
    return loss;
  };
  const auto replayed = function(step);
  for (int i = 0; i < kSteps; ++i) {
    const std::int64_t begin = i % 4 * kBatch, size = std::min(kBatch, kExamples - begin);
    const auto split = distribute::BatchSplit::even(size, std::max(ranks, 1));
    const auto me = static_cast<std::size_t>(rank);
    // The fourth rank has no examples of the last batch: it contributes zeros.
    const bool idle = split.counts[me] == 0;
    const std::int64_t first = idle ? 0 : begin + split.offsets[me];
    const Examples mine = data.rows(first, first + (idle ? 1 : split.counts[me]));
    if (traced)
      replayed(mine.x, mine.y, size, idle ? 0.0 : 1.0);
    else
      step(mine.x, mine.y, size, idle ? 0.0 : 1.0);
  }
  return testing::weights_of(model);
}

TEST(ProcessGroupTraining, RanksEqualOneProcess) {
  for (bool traced : {false, true})
    for (int ranks = 1; ranks <= 4; ++ranks)
      expect_group({.size = ranks},
                   [&](int rank) { expect_near(train(rank, ranks, traced), train(0, 0, false)); });
}

TEST(ProcessGroupTraining, TwoRunsGiveTheSameBits) {
  for (const std::string backend : {"shm", "gloo"}) {
    if (backend == "gloo") TANDEM_REQUIRE(has_gloo(), "gloo");
    expect_group({.size = 3, .backend = backend}, [&](int rank) {
      const Weights first = train(rank, 3, false);
      EXPECT_EQ(train(rank, 3, false), first);
      std::string bytes;
      for (const auto& tensor : first)
        bytes.append(reinterpret_cast<const char*>(tensor.data()), tensor.size() * sizeof(float));
      for (const std::string& other : comm::all_gather_object(bytes)) EXPECT_EQ(other, bytes);
    });
  }
}

}  // namespace
}  // namespace tandem::process_group_training_test
