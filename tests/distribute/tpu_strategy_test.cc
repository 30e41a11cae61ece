// TPUStrategy over the devices of a PJRT plug-in, against MirroredStrategy over as many CPUs.
#include <gtest/gtest.h>

#include <cmath>

#include "runtime/variable_impl.h"
#include "support/errors.h"
#include "support/pjrt.h"
#include "tandem/tandem.h"

namespace tandem {
namespace {

using distribute::MirroredStrategy;
using distribute::PerReplica;
using distribute::Strategy;
using distribute::TPUStrategy;

constexpr int kReplicas = 4;

class TpuStrategy : public ::testing::Test {
 protected:
  void SetUp() override {
    TANDEM_REQUIRE(!testing::first_plugin().empty(), "pjrt");
    config::set_logical_cpus(kReplicas);
    config::load_pjrt_plugin(testing::first_plugin());
  }
  static MirroredStrategy cpus() {
    return MirroredStrategy({.devices = {"/cpu:0", "/cpu:1", "/cpu:2", "/cpu:3"}});
  }
};

data::Dataset images(std::int64_t count, std::int64_t batch) {
  random::set_seed(11);
  const Tensor x = random::normal({count, 12, 12, 1});
  const Tensor y = random::uniform_int({count}, 0, 5, {.dtype = int64});
  return data::Dataset::from_tensor_slices({x, y}).batch(batch);
}

std::vector<std::vector<float>> weights_of(const Sequential& model) {
  std::vector<std::vector<float>> weights;
  for (const Variable& variable : model.variables())
    weights.push_back(cast(variable.value(), float32).to_vector<float>());
  return weights;
}

void expect_close(const std::vector<std::vector<float>>& a,
                  const std::vector<std::vector<float>>& b, double tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t v = 0; v < a.size(); ++v) {
    ASSERT_EQ(a[v].size(), b[v].size());
    for (std::size_t i = 0; i < a[v].size(); ++i)
      ASSERT_NEAR(a[v][i], b[v][i], tolerance) << "variable " << v << " element " << i;
  }
}

struct Trained {
  std::vector<std::vector<float>> weights;
  std::vector<double> losses;
  double accuracy = 0.0;
};

Trained train(const Strategy& strategy, const std::function<Sequential()>& make,
              const optimizers::Optimizer& optimizer) {
  random::set_seed(3);
  Sequential model;
  {
    auto scope = strategy.scope();
    model = make();
    model.compile({.optimizer = optimizer,
                   .loss = losses::SparseCategoricalCrossentropy({.from_logits = true}),
                   .metrics = {"accuracy"}});
  }
  const History history = model.fit(images(160, 16), {.epochs = 5, .verbose = 0});
  Trained trained{.weights = weights_of(model)};
  trained.losses = history.history.at("loss");
  trained.accuracy = model.evaluate(images(160, 16), {.verbose = 0}).at("accuracy");
  return trained;
}

Sequential convolutional() {
  return Sequential({
      layers::Conv2D(4, {3, 3}, {.activation = "relu", .input_shape = {12, 12, 1}}),
      layers::MaxPooling2D({2, 2}),
      layers::Flatten(),
      layers::Dense(8, {.activation = "relu"}),
      layers::Dense(5),
  });
}

TEST_F(TpuStrategy, FitsLikeMirrored) {
  const TPUStrategy tpus;
  EXPECT_EQ(tpus.num_replicas_in_sync(), kReplicas);
  const auto sgd = [] { return optimizers::SGD({.learning_rate = 0.05, .momentum = 0.9}); };
  const Trained compiled = train(tpus, convolutional, sgd());
  const Trained mirrored = train(cpus(), convolutional, sgd());
  expect_close(compiled.weights, mirrored.weights, 1e-4);
  for (std::size_t i = 0; i < compiled.losses.size(); ++i)
    EXPECT_NEAR(compiled.losses[i], mirrored.losses[i], 1e-4);
  EXPECT_NEAR(compiled.accuracy, mirrored.accuracy, 0.01);
}

}  // namespace
}  // namespace tandem
