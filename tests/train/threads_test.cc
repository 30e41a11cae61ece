// Training gives the same bits with any number of intra-op threads.
#include <gtest/gtest.h>

#include "support/expects.h"
#include "support/tensors.h"
#include "support/thread_counts.h"
#include "tandem/tandem.h"

namespace tandem::threads_test {
namespace {

// The weights of a convolutional network after some steps.
std::vector<double> trained_weights(bool run_eagerly) {
  random::set_seed(3);
  Sequential model({layers::Conv2D(6, 5, {.padding = "same", .activation = "relu"}),
                    layers::MaxPooling2D(2), layers::DepthwiseConv2D(3),
                    layers::BatchNormalization(), layers::Conv2D(16, 3, {.activation = "tanh"}),
                    layers::Flatten(), layers::Dense(10)});
  model.compile({.optimizer = "adam",
                 .loss = losses::SparseCategoricalCrossentropy({.from_logits = true}),
                 .run_eagerly = run_eagerly});
  const Tensor x = random::normal({80, 20, 20, 1});
  const Tensor y = random::uniform_int({80}, 0, 10);
  model.fit(data::Dataset::from_tensor_slices({x, y}).batch(32), {.epochs = 2, .verbose = 0});
  std::vector<double> weights;
  for (const Variable& variable : model.variables())
    for (const double value : testing::values_of(variable.value())) weights.push_back(value);
  return weights;
}

TEST(Threads, AConvolutionalNetTrainsToTheSameBitsWithAnyTeam) {
  // Without AVX-512, oneDNN rounds by where the parts of its threads end.
  TANDEM_REQUIRE(__builtin_cpu_supports("avx512f"), "avx512");
  testing::expect_same_bits_with_any_team([] { return trained_weights(false); });
  testing::expect_same_bits_with_any_team([] { return trained_weights(true); });
}

}  // namespace
}  // namespace tandem::threads_test
