// Synchronised batch normalisation against one process with the same global batch.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "parallel/ddp_models.h"
#include "runtime/variable_impl.h"
#include "support/errors.h"
#include "support/gpus.h"
#include "support/gradient_check.h"
#include "support/process_groups.h"
#include "support/strategies.h"
#include "support/tensors.h"
#include "tandem/apex.h"

namespace tandem::sync_batch_norm_test {
namespace {

using apex::parallel::convert_syncbn_model;
using apex::parallel::create_syncbn_process_group;
using apex::parallel::sync_batch_norm;
using apex::parallel::SyncBatchNorm;
using apex::parallel::SyncBatchNormResult;
using namespace testing;

constexpr double kEpsilon = 1e-2;
constexpr std::int64_t kChannels = 3;

struct Data {
  Tensor x, gamma, beta, weights;
};
// The global batch; `weights` make a scalar of y.
Data global_data(std::int64_t examples, DType dtype = float64) {
  const Shape shape{examples, 2, 2, kChannels};
  return {random_tensor(shape, 1, -1, 3, dtype), random_tensor({kChannels}, 2, 0.5, 1.5, dtype),
          random_tensor({kChannels}, 3, -1, 1, dtype), random_tensor(shape, 4, 0.5, 1.5, dtype)};
}

// The examples of a rank: sizes[rank] rows after those of the ranks before it.
Tensor rows_of(const Tensor& all, const std::vector<std::int64_t>& sizes, int rank) {
  const std::int64_t begin = std::accumulate(sizes.begin(), sizes.begin() + rank, std::int64_t{0});
  return slice_rows(all, begin, begin + sizes[static_cast<std::size_t>(rank)]);
}

std::vector<Tensor> gradients_of(const Data& data, bool synchronized) {
  GradientTape tape;
  for (const Tensor& tensor : {data.x, data.gamma, data.beta}) tape.watch(tensor);
  const Tensor y = synchronized
                       ? sync_batch_norm(data.x, data.gamma, data.beta, kEpsilon).y
                       : nn::batch_norm_training(data.x, data.gamma, data.beta, kEpsilon).y;
  return tape.gradient(reduce_sum(y * data.weights), {data.x, data.gamma, data.beta});
}

const std::vector<std::vector<std::int64_t>> kSizes = {
    {3, 3}, {4, 1}, {5, 0}, {1, 0, 4}, {2, 3, 1}};

void expect_as_one_process(const std::vector<std::int64_t>& sizes, DType dtype, double tolerance) {
  expect_group({.size = static_cast<int>(sizes.size())}, [&](int rank) {
    const Data all =
        global_data(std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}), dtype);
    Data mine = all;
    mine.x = rows_of(all.x, sizes, rank);
    mine.weights = rows_of(all.weights, sizes, rank);
    const auto expect = [&](const Tensor& actual, const Tensor& expected) {
      expect_tensor(actual, expected.dtype(), expected.shape(), values_of(expected), tolerance);
    };
    const nn::BatchNormResult one = nn::batch_norm_training(all.x, all.gamma, all.beta, kEpsilon);
    const auto run = [&](const Tensor& x) {
      const SyncBatchNormResult r = sync_batch_norm(x, mine.gamma, mine.beta, kEpsilon);
      return std::vector<Tensor>{r.y, r.mean, r.variance};
    };
    const auto replayed = function(run);
    for (const bool traced : {false, true}) {
      const std::vector<Tensor> result = traced ? replayed(mine.x) : run(mine.x);
      expect(result[0], rows_of(one.y, sizes, rank));
      expect(result[1], one.mean);
      expect(result[2], one.variance);
    }
    const std::vector<Tensor> expected = gradients_of(all, false);
    const auto gradients = [&](const Tensor& x) {
      return gradients_of({x, mine.gamma, mine.beta, mine.weights}, true);
    };
    const auto replayed_gradients = function(gradients);
    for (const bool traced : {false, true}) {
      const std::vector<Tensor> own = traced ? replayed_gradients(mine.x) : gradients(mine.x);
      expect(own[0], rows_of(expected[0], sizes, rank));
      for (const int parameter : {1, 2})  // each rank has its part
        expect(comm::all_reduce(own[static_cast<std::size_t>(parameter)]),
               expected[static_cast<std::size_t>(parameter)]);
    }
  });
}

TEST(SyncBatchNorm, RanksEqualOneProcessWithUnevenAndEmptyBatches) {
  for (const auto& sizes : kSizes) {
    SCOPED_TRACE(::testing::PrintToString(sizes));
    expect_as_one_process(sizes, float64, 1e-10);
    expect_as_one_process(sizes, float32, 1e-5);
  }
}

TEST(SyncBatchNorm, ComputesSixteenBitsInFloat32) {
  expect_as_one_process({2, 3, 1}, bfloat16, 0.04);
}

// Far from zero the square of the mean is 10^8 times the variance.
TEST(SyncBatchNorm, KeepsItsPrecisionFarFromZero) {
  expect_group({.size = 2}, [](int rank) {
    const Tensor x =
        constant(std::vector<float>{10000.f + 2 * rank, 10001.f + 2 * rank}, {.shape = {2, 1}});
    const SyncBatchNormResult result = sync_batch_norm(x, ones({1}), zeros({1}), 1e-6);
    expect_tensor(result.mean, float32, {1}, {10001.5}, 1e-6);
    expect_tensor(result.variance, float32, {1}, {1.25}, 1e-5);
    expect_tensor(result.count, float64, {1}, {4.0});
  });
}

// The loss is the sum over the ranks, of which each moves its own elements in turn.
TEST(SyncBatchNorm, GradientsAcrossRanksAreNumericallyRight) {
  const std::vector<std::int64_t> sizes = {2, 1};
  expect_group({.size = 2}, [&](int rank) {
    const Data all = global_data(3);
    Data mine = all;
    mine.x = rows_of(all.x, sizes, rank);
    mine.weights = rows_of(all.weights, sizes, rank);
    const std::vector<double> x = values_of(mine.x);
    const auto loss_at = [&](int mover, std::size_t element, double by) {
      std::vector<double> moved = x;
      if (mover == rank) moved[element] += by;
      const Tensor y = sync_batch_norm(constant(moved, {.shape = mine.x.shape()}), mine.gamma,
                                       mine.beta, kEpsilon)
                           .y;
      return comm::all_reduce(reduce_sum(y * mine.weights)).item<double>();
    };
    const std::vector<double> gradient = values_of(gradients_of(mine, true)[0]);
    for (int mover = 0; mover < 2; ++mover)
      for (std::size_t i = 0; i < static_cast<std::size_t>(12 * sizes[mover]); ++i) {
        const double slope = (loss_at(mover, i, 1e-5) - loss_at(mover, i, -1e-5)) / 2e-5;
        if (mover == rank) {
          EXPECT_NEAR(gradient[i], slope, 1e-7) << i;
        }
      }
  });
}

TEST(SyncBatchNorm, HasRightGradientsAlsoOfItsMomentsAndOfSecondOrder) {
  const Data data = global_data(3);
  const auto y = [](const std::vector<Tensor>& in) {
    return sync_batch_norm(in[0], in[1], in[2], kEpsilon).y;
  };
  const auto moments = [](const std::vector<Tensor>& in) {
    const SyncBatchNormResult result = sync_batch_norm(in[0], in[1], in[2], kEpsilon);
    return concat({result.mean, result.variance * 2.0}, 0);
  };
  testing::expect_gradients(y, {data.x, data.gamma, data.beta});
  testing::expect_gradients(moments, {data.x, data.gamma, data.beta});
  testing::expect_second_order(y, {slice_rows(data.x, 0, 1), data.gamma, data.beta},
                               {.tolerance = 1e-5});
}

TEST(SyncBatchNorm, NeedsNoProcessGroup) {
  const Data data = global_data(4);
  const nn::BatchNormResult one = nn::batch_norm_training(data.x, data.gamma, data.beta, kEpsilon);
  const SyncBatchNormResult result = sync_batch_norm(data.x, data.gamma, data.beta, kEpsilon);
  expect_tensor(result.y, float64, data.x.shape(), values_of(one.y), 1e-12);
}

// --- the layer ---

TEST(SyncBatchNorm, FollowsTheConventionsOfPyTorchAndOfKeras) {
  const Tensor x = random_tensor({5, 2}, 1, -1, 3, float32);
  const std::vector<double> v = values_of(x);
  for (const bool keras : {false, true}) {
    const Layer layer =
        keras ? layers::BatchNormalization({.synchronized = true}) : SyncBatchNorm();
    const double keep = keras ? 0.99 : 0.9, epsilon = keras ? 1e-3 : 1e-5;
    const std::vector<double> y = values_of(layer(x, {.training = true}));
    for (std::size_t c = 0; c < 2; ++c) {
      double mean = 0, variance = 0;
      for (std::size_t i = c; i < v.size(); i += 2) mean += v[i] / 5;
      for (std::size_t i = c; i < v.size(); i += 2) variance += (v[i] - mean) * (v[i] - mean) / 5;
      for (std::size_t i = c; i < v.size(); i += 2)
        EXPECT_NEAR(y[i], (v[i] - mean) / std::sqrt(variance + epsilon), 1e-5);
      const auto moving = layer.non_trainable_variables();
      EXPECT_NEAR(values_of(moving[0])[c], (1 - keep) * mean, 1e-6);
      EXPECT_NEAR(values_of(moving[1])[c], keep + (1 - keep) * variance * (keras ? 1.0 : 5.0 / 4),
                  1e-6);
    }
  }
}

TEST(SyncBatchNorm, HasApexsOptions) {
  const apex::parallel::SyncBatchNormOptions options;
  EXPECT_EQ(options.eps, 1e-5);
  EXPECT_EQ(options.momentum, 0.1);
  EXPECT_FALSE(options.fuse_relu);
  const Tensor x = random_tensor({5, 2}, 1, -1, 3, float32);
  const Layer layer = SyncBatchNorm({.affine = false, .fuse_relu = true});
  const Tensor y = layer(x, {.training = true});
  EXPECT_TRUE(layer.trainable_variables().empty());
  expect_close(y, nn::relu(SyncBatchNorm()(x, {.training = true})));
  EXPECT_EQ(values_of(reduce_min(y))[0], 0.0);
}

TEST(SyncBatchNorm, RefusesASingleValueOnASingleRank) {
  const Layer layer = SyncBatchNorm();
  testing::expect_parts(
      error_of<InvalidArgumentError>([&] {
        layer(ones({1, 1, 1, 2}), {.training = true});
      }),
      {"Expected more than 1 value per channel when training, got input size (1, 1, 1, 2)"});
}

TEST(SyncBatchNorm, TakesASingleValueOfEachOfTwoRanks) {
  expect_group({.size = 2}, [](int rank) {
    const Layer two = SyncBatchNorm();
    const Tensor y = two(full({1, 2}, rank), {.training = true});
    EXPECT_NEAR(y.to_vector<float>()[0], rank == 0 ? -1 : 1, 1e-3);
  });
}

TEST(SyncBatchNorm, KeepsItsAveragesWhenNoRankHasExamples) {
  expect_group({.size = 2}, [](int) {
    const Layer layer = SyncBatchNorm();
    layer(random_tensor({3, 2}, 1, -1, 1, float32), {.training = true});
    const Weights before = {layer.variables()[2].value().to_vector<float>(),
                            layer.variables()[3].value().to_vector<float>()};
    EXPECT_EQ(layer(zeros({0, 2}), {.training = true}).shape(), (Shape{0, 2}));
    EXPECT_EQ(layer.variables()[2].value().to_vector<float>(), before[0]);
    EXPECT_EQ(layer.variables()[3].value().to_vector<float>(), before[1]);
  });
}

// --- models ---

// Without biases before a normalisation, which takes them away again.
Sequential with_moments(bool synchronized) {
  random::set_seed(5);
  const auto norm = [&] { return layers::BatchNormalization({.synchronized = synchronized}); };
  return Sequential({layers::Dense(16, {.use_bias = false, .input_shape = {6}}), norm(),
                     layers::Activation("tanh"), layers::Dense(8, {.use_bias = false}), norm(),
                     layers::Dense(3)});
}

// The mean over the examples, also of none.
Tensor mean_loss(const Tensor& logits, const Tensor& y) {
  const double count = static_cast<double>(std::max<std::int64_t>(y.dim(0), 1));
  return reduce_sum(nn::sparse_softmax_cross_entropy(y, logits)) / count;
}

template <class M>
Weights trained(const M& model, const std::vector<testing::Examples>& batches, bool traced) {
  auto optimizer = optimizers::SGD({.learning_rate = 0.1, .momentum = 0.9}, model.parameters());
  const auto step = [&](const Tensor& x, const Tensor& y) {
    optimizer.zero_grad();
    const Tensor loss = mean_loss(model(x, {.training = true}), y);
    loss.backward();
    optimizer.step();
    return loss;
  };
  const auto replayed = function(step);
  for (const testing::Examples& batch : batches)
    traced ? replayed(batch.x, batch.y) : step(batch.x, batch.y);
  return weights_of(model);
}

TEST(SyncBatchNorm, DistributedDataParallelEqualsOneProcess) {
  const std::vector<std::vector<std::int64_t>> sizes = {{4, 4}, {5, 3}, {7, 1}, {8, 0}};
  for (const bool traced : {false, true})
    expect_group({.size = 2}, [&](int rank) {
      const testing::Examples data = testing::examples(32);
      std::vector<testing::Examples> all, mine;
      for (std::size_t step = 0; step < sizes.size(); ++step) {
        const auto begin = static_cast<std::int64_t>(8 * step);
        all.push_back(data.rows(begin, begin + 8));
        mine.push_back(
            {rows_of(all.back().x, sizes[step], rank), rows_of(all.back().y, sizes[step], rank)});
      }
      const Weights one = trained(with_moments(false), all, false);
      const tandem::parallel::DistributedDataParallel model(with_moments(true));
      expect_near(trained(model, mine, traced), one, 2e-4);
    });
}

// Trains in replicas, whose last batch is uneven.
Weights trained_under(const distribute::Strategy& strategy, bool synchronized, bool traced) {
  Model model;
  optimizers::Optimizer optimizer;
  {
    const auto scope = strategy.scope();
    model = with_moments(synchronized);
    optimizer = optimizers::SGD({.learning_rate = 0.1, .momentum = 0.9});
  }
  const auto step = [&](const data::Example& batch) {
    return testing::step_of_replica(model, optimizer, batch);
  };
  const auto run = [&](const distribute::PerReplica<data::Example>& batch) {
    return strategy.run(step, batch);
  };
  const auto replayed = function(run);
  const testing::Examples data = testing::examples(21);
  const auto batches = data::Dataset::from_tensor_slices({data.x, data.y}).batch(8).repeat(3);
  for (const auto& batch : strategy.experimental_distribute_dataset(batches))
    traced ? replayed(batch) : run(batch);
  return weights_of(model);
}

TEST(SyncBatchNorm, ReplicasEqualOneDevice) {
  config::set_logical_cpus(2);
  const Weights one = trained_under(distribute::OneDeviceStrategy("/cpu:0"), false, false);
  const distribute::MirroredStrategy two({.devices = {"/cpu:0", "/cpu:1"}});
  for (const bool traced : {false, true}) {
    SCOPED_TRACE(traced);
    expect_near(trained_under(two, true, traced), one, 2e-4);
  }
}

TEST(SyncBatchNorm, EmulatedGpusEqualOneDevice) {
  testing::use_gpus(2, 64);
  const Weights one = trained_under(distribute::OneDeviceStrategy("/cpu:0"), false, false);
  const distribute::MirroredStrategy two({.devices = {"/gpu:0", "/gpu:1"}});
  for (const bool traced : {false, true}) {
    SCOPED_TRACE(traced);
    expect_near(trained_under(two, true, traced), one, 2e-4);
  }
}

TEST(ConvertSyncBatchNorm, KeepsVariablesAndConventions) {
  expect_group({.size = 2}, [](int rank) {
    const SymbolicInput input = Input({6});
    const Layer norm = layers::BatchNormalization({.momentum = 0.75, .name = "norm"});
    const Functional functional(input, layers::Dense(3)(norm(layers::Dense(4)(input))));
    const Sequential nested(
        {layers::Stack({layers::Dense(4), layers::BatchNormalization()}, {.input_shape = {6}}),
         layers::Dense(2)});
    for (const Model& model : {Model(functional), Model(nested), Model(with_moments(false))}) {
      const std::vector<Variable> before = model.variables();
      const Model converted = convert_syncbn_model(model);
      EXPECT_TRUE(converted.variables() == before);
      converted(random_tensor({3, 6}, static_cast<std::uint32_t>(rank + 1), -1, 1, float32),
                {.training = true});
      for (const Variable& variable : converted.non_trainable_variables()) {
        const std::vector<Tensor> all = comm::all_gather(variable);
        EXPECT_EQ(all[0].to_vector<float>(), all[1].to_vector<float>()) << variable.name();
      }
    }
  });
}

TEST(ConvertSyncBatchNorm, RefusesACompiledModel) {
  Sequential model = with_moments(false);
  model.compile({.optimizer = "sgd", .loss = losses::MeanSquaredError()});
  testing::expect_parts(error_of<FailedPreconditionError>([&] { convert_syncbn_model(model); }),
                        {"[convert_syncbn_model] expected a model that is not compiled"});
}

TEST(CreateSyncBatchNormProcessGroup, DividesTheRanks) {
  expect_group({.size = 4}, [](int rank) {
    const comm::ProcessGroup pair = create_syncbn_process_group(2);
    EXPECT_EQ(pair.ranks(), rank < 2 ? (std::vector{0, 1}) : (std::vector{2, 3}));
    const SyncBatchNormResult result =
        sync_batch_norm(full({1, 1}, rank), ones({1}), zeros({1}), 1e-5, pair);
    expect_tensor(result.mean, float32, {1}, {rank < 2 ? 0.5 : 2.5});
    EXPECT_FALSE(create_syncbn_process_group(0).impl());
    EXPECT_EQ(error_of<InvalidArgumentError>([] { create_syncbn_process_group(3); }),
              "[create_syncbn_process_group] expected a group_size that divides the 4 ranks, or 0 "
              "for all of them, got 3");
  });
}

TEST(SyncBatchNorm, RefusesGraphsForSessions) {
  expect_group({.size = 2}, [](int) {
    Graph graph;
    const GraphScope scope(graph);
    testing::expect_parts(error_of<UnimplementedError>([] {
                            sync_batch_norm(ones({2, 1}), ones({1}), zeros({1}));
                          }),
                          {"[sync_batch_norm] graphs for sessions do not support"});
  });
}

}  // namespace
}  // namespace tandem::sync_batch_norm_test
