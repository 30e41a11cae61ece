// DistributedOptimizer and related classes: several processes compared with one.
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "hvd/expect_close.h"
#include "support/expects.h"
#include "support/files.h"
#include "support/hvd_ranks.h"
#include "support/mpirun.h"
#include "support/tensors.h"
#include "support/waiting.h"
#include "tandem/tandem.h"

namespace tandem::training_test {
namespace {

using testing::expect_close;
using testing::expect_error;
using testing::expect_hvd;
using testing::run_hvd;
using testing::values_of;

constexpr std::int64_t kExamples = 50, kBatch = 16;  // the last batch of an epoch has two

struct Data {
  Tensor x, y;
};
Data make_data() {
  random::set_seed(9);
  Data data;
  data.x = random::normal({kExamples, 6});
  data.y = argmax(slice(data.x, {0, 0}, {-1, 3}), 1);
  return data;
}

Sequential make_model() {
  random::set_seed(5);
  return Sequential({layers::Dense(16, {.activation = "relu", .input_shape = {6}}),
                     layers::Dense(8, {.activation = "tanh"}), layers::Dense(3)});
}

// The rows of batch `step` for rank `rank` of `ranks`; sizes differ by at most one.
std::pair<std::int64_t, std::int64_t> part(std::int64_t step, int rank, int ranks,
                                           std::int64_t& total) {
  const std::int64_t batches = (kExamples + kBatch - 1) / kBatch;
  const std::int64_t begin = step % batches * kBatch;
  total = std::min(kBatch, kExamples - begin);
  const std::int64_t first = total * rank / ranks, last = total * (rank + 1) / ranks;
  return {begin + first, last - first};
}

enum class Way { kMinimize, kApply, kTraced, kTape, kStep };

using Weights = std::vector<double>;
Weights weights_of(const Sequential& model) {
  Weights all;
  for (const Variable& variable : model.variables())
    for (double value : values_of(variable.value())) all.push_back(value);
  return all;
}

// Trains 50 steps on a rank's part of each batch. The loss is divided by the size of the global
// batch and gradients are summed, so uneven parts have the right weights. `distribute` may wrap the
// optimizer.
Weights train(int rank, int ranks, Way way, bool adam, int steps,
              const std::function<optimizers::Optimizer(optimizers::Optimizer)>& distribute) {
  const Data data = make_data();
  Sequential model = make_model();
  const std::vector<Variable> variables = model.trainable_variables();
  optimizers::Optimizer plain = optimizers::SGD({.learning_rate = 0.1, .momentum = 0.9}, variables);
  if (adam) plain = optimizers::Adam({.learning_rate = 0.02, .global_clipnorm = 1.0}, variables);
  optimizers::Optimizer optimizer = distribute(plain);
  const auto loss_of = [&](const Tensor& x, const Tensor& y, std::int64_t total) {
    return nn::compute_average_loss(nn::sparse_softmax_cross_entropy(y, model(x)),
                                    {.global_batch_size = total});
  };
  const auto traced = function([&](const Tensor& x, const Tensor& y, std::int64_t total) {
    const Tensor loss = loss_of(x, y, total);
    optimizer.minimize(loss, variables);
    return loss;
  });
  for (int step = 0; step < steps; ++step) {
    std::int64_t total = 0;
    const auto [begin, count] = part(step, rank, ranks, total);
    if (count == 0) {  // this rank has no example in the batch
      if (way == Way::kTape) {
        hvd::DistributedGradientTape tape({.op = hvd::kSum});
        const Tensor none = reduce_sum(variables[0].value()) * 0.0;
        plain.apply_gradients(tape.gradient(none, variables), variables);
      } else {
        optimizer.apply_gradients(std::vector<Tensor>(variables.size()), variables);
      }
      continue;
    }
    const Tensor x = slice(data.x, {begin, 0}, {count, -1}), y = slice(data.y, {begin}, {count});
    switch (way) {
      case Way::kMinimize: optimizer.minimize(loss_of(x, y, total), variables); break;
      case Way::kTraced: traced(x, y, total); break;
      case Way::kApply: {
        GradientTape tape;
        optimizer.apply_gradients(tape.gradient(loss_of(x, y, total), variables), variables);
        break;
      }
      case Way::kTape: {
        hvd::DistributedGradientTape tape({.op = hvd::kSum});
        plain.apply_gradients(tape.gradient(loss_of(x, y, total), variables), variables);
        break;
      }
      case Way::kStep:
        optimizer.zero_grad();
        loss_of(x, y, total).backward();
        optimizer.step();
        break;
    }
  }
  return weights_of(model);
}

Weights train_alone(bool adam = false, int steps = 50) {
  return train(0, 1, Way::kMinimize, adam, steps,
               [](optimizers::Optimizer plain) { return plain; });
}

void expect_as_one_process(Way way, bool adam, const std::vector<int>& numbers,
                           const testing::Settings& environment = {}) {
  for (int ranks : numbers)
    expect_hvd(
        ranks,
        [&](int rank) {
          const Weights together =
              train(rank, ranks, way, adam, 50, [](optimizers::Optimizer plain) {
                return hvd::DistributedOptimizer(plain, {.op = hvd::kSum});
              });
          expect_close(together, train_alone(adam), 1e-5);
        },
        environment);
}

TEST(HvdTraining, MinimizeEqualsOneProcess) {
  expect_as_one_process(Way::kMinimize, false, {1, 2, 3, 4});
}
TEST(HvdTraining, ApplyGradientsEqualsOneProcess) {
  expect_as_one_process(Way::kApply, true, {2, 3});
}
TEST(HvdTraining, TheOptimizersStepEqualsOneProcess) {
  expect_as_one_process(Way::kStep, false, {2});
}
TEST(HvdTraining, TheTapeEqualsOneProcess) { expect_as_one_process(Way::kTape, false, {2, 4}); }
// With three and four ranks some have no example of the last batch: they take an eager step, and
// have other sizes than the other ranks.
TEST(HvdTraining, ATracedStepEqualsOneProcess) {
  expect_as_one_process(Way::kTraced, false, {1, 2, 3, 4});
  expect_as_one_process(Way::kTraced, true, {2});
}
TEST(HvdTraining, WithoutCacheAndFusionTheResultIsTheSame) {
  expect_as_one_process(Way::kMinimize, false, {3},
                        {{"HOROVOD_CACHE_CAPACITY", "0"}, {"HOROVOD_FUSION_THRESHOLD", "0"}});
}
TEST(HvdTraining, OverGlooTheResultIsTheSame) {
  expect_as_one_process(Way::kMinimize, false, {2}, {{"HOROVOD_CPU_OPERATIONS", "gloo"}});
}

TEST(HvdTraining, OverMpiTheResultIsTheSame) {
  TANDEM_REQUIRE(can_use_mpirun(), "mpi");
  if (!started_by_mpirun()) {
    setenv("HOROVOD_CPU_OPERATIONS", "mpi", 1);
    for (int ranks : {2, 3}) EXPECT_EQ(run_this_test_by_mpirun(ranks), 0);
    return;
  }
  hvd::init();
  for (Way way : {Way::kMinimize, Way::kTraced})
    expect_close(train(hvd::rank(), hvd::size(), way, false, 50,
                       [](optimizers::Optimizer plain) {
                         return hvd::DistributedOptimizer(plain, {.op = hvd::kSum});
                       }),
                 train_alone(), 1e-5);
  hvd::shutdown();
}

TEST(HvdTraining, OnGpusTheResultIsTheSame) {
  for (Way way : {Way::kMinimize, Way::kTraced})
    expect_as_one_process(way, false, {2}, {{"TANDEM_EMULATED_GPUS", "1"}});
}

// How often the timeline has each event of an optimizer's gradients.
std::map<std::string, std::set<int>> events_of_gradients(Way way, int steps) {
  const testing::TemporaryDirectory folder;
  const std::string file = (folder.path() / "timeline.json").string();
  expect_hvd(2,
             [&](int rank) {
               train(rank, 2, way, false, steps,
                     [](optimizers::Optimizer plain) { return hvd::DistributedOptimizer(plain); });
             },
             {{"HOROVOD_TIMELINE", file}});
  std::ifstream in(file);
  const nlohmann::json trace = nlohmann::json::parse(in);
  std::map<int, std::string> rows;
  std::map<std::string, std::map<std::string, int>> counts;  // of an event, by gradient
  for (const auto& event : trace["traceEvents"]) {
    if (event["name"] == "process_name") rows[event["pid"]] = event["args"]["name"];
    if (event["ph"] == "X" && rows[event["pid"]].starts_with("DistributedOptimizer"))
      ++counts[event["name"]][rows[event["pid"]]];
  }
  std::map<std::string, std::set<int>> numbers;
  for (const auto& [name, by_gradient] : counts)
    for (const auto& [gradient, count] : by_gradient) numbers[name].insert(count);
  return numbers;
}

TEST(HvdTraining, GradientsAreReducedOnTheirDevice) {
  for (Way way : {Way::kMinimize, Way::kTraced}) {
    auto events = events_of_gradients(way, 6);
    EXPECT_EQ(events["NEGOTIATE_ALLREDUCE"], (std::set<int>{6}));
    EXPECT_FALSE(events.contains("MEMCPY_IN_FUSION_BUFFER"));
  }
}

TEST(HvdTraining, ARankThatIsKilledInAStepIsNamed) {
  for (Way way : {Way::kMinimize, Way::kTraced}) {
    const ExitCodes codes = run_hvd(2, [&](int rank) {
      if (rank == 1) {
        train(rank, 2, way, false, 7, [](optimizers::Optimizer plain) {
          return hvd::DistributedOptimizer(plain, {.op = hvd::kSum});
        });
        kill(getpid(), SIGKILL);
      }
      expect_error<Error>(
          [&] {
            train(rank, 2, way, false, 50, [](optimizers::Optimizer plain) {
              return hvd::DistributedOptimizer(plain, {.op = hvd::kSum});
            });
          },
          "rank 1");
    });
    EXPECT_EQ(codes, (ExitCodes{0, 128 + SIGKILL}));
  }
}

TEST(HvdTraining, TwoRunsGiveTheSameBits) {
  auto shared = testing::shared_with_forks<std::array<double, 1024>>();
  for (Way way : {Way::kMinimize, Way::kTraced})
    for (int run = 0; run < 2; ++run)
      expect_hvd(2, [&](int rank) {
        const Weights weights = train(rank, 2, way, false, 50, [](optimizers::Optimizer plain) {
          return hvd::DistributedOptimizer(plain, {.op = hvd::kSum});
        });
        ASSERT_LT(weights.size(), shared->size());
        hvd::barrier();
        if (run == 0 && rank == 0) std::copy(weights.begin(), weights.end(), shared->begin());
        if (run == 1) {
          EXPECT_TRUE(std::equal(weights.begin(), weights.end(), shared->begin()));
        }
      });
}

// Batches have equal sizes on all ranks, so the mean of means is the mean.
Tensor even_loss(Sequential& model, const Data& data, int step, int rank, int ranks) {
  const std::int64_t each = 12 / ranks, begin = (step % 4) * 12 + rank * each;
  return reduce_mean(nn::sparse_softmax_cross_entropy(
      slice(data.y, {begin}, {each}), model(slice(data.x, {begin, 0}, {each, -1}))));
}

Weights train_evenly(
    int rank, int ranks, int steps, int passes,
    const std::function<optimizers::Optimizer(optimizers::Optimizer)>& distribute) {
  const Data data = make_data();
  Sequential model = make_model();
  auto optimizer = distribute(optimizers::SGD({.learning_rate = 0.1, .momentum = 0.9}));
  for (int step = 0; step < steps; ++step)
    for (int pass = 0; pass < passes; ++pass)
      optimizer.minimize(even_loss(model, data, step * passes + pass, rank, ranks),
                         model.trainable_variables());
  return weights_of(model);
}

TEST(HvdTraining, OptionsOfTheOptimizer) {
  expect_hvd(2, [](int rank) {
    const Weights alone =
        train_evenly(0, 1, 20, 1, [](optimizers::Optimizer plain) { return plain; });
    const auto with = [&](const hvd::DistributedOptions& options) {
      return train_evenly(rank, 2, 20, 1, [&](optimizers::Optimizer plain) {
        return hvd::DistributedOptimizer(plain, options);
      });
    };
    expect_close(with({}), alone, 1e-5);
    expect_close(with({.gradient_predivide_factor = 4.0}), alone, 1e-5);
    expect_close(with({.compression = hvd::Compression::kFP16}), alone, 2e-2);
    expect_close(with({.compression = hvd::Compression::kBF16}), alone, 1e-1);
    expect_error<InvalidArgumentError>(
        [&] { with({.op = hvd::kSum, .gradient_predivide_factor = 2.0}); },
        "gradient_predivide_factor not supported with op != Average");
    expect_error<InvalidArgumentError>([&] { with({.op = hvd::kMin}); },
                                       "expected op kAverage, kSum or kAdasum");
    expect_error<InvalidArgumentError>([&] { with({.backward_passes_per_step = 0}); },
                                       "backward_passes_per_step of at least 1");
  });
}

TEST(HvdTraining, BackwardPassesAreAccumulated) {
  expect_hvd(2, [](int rank) {
    // One process takes a step on the sum of the losses of both passes.
    const Data data = make_data();
    Sequential model = make_model();
    auto optimizer = optimizers::SGD({.learning_rate = 0.1, .momentum = 0.9});
    for (int step = 0; step < 10; ++step)
      optimizer.minimize(
          (even_loss(model, data, 2 * step, 0, 1) + even_loss(model, data, 2 * step + 1, 0, 1)) *
              0.5,
          model.trainable_variables());
    const Weights together = train_evenly(rank, 2, 10, 2, [](optimizers::Optimizer plain) {
      return hvd::DistributedOptimizer(
          plain, {.backward_passes_per_step = 2, .average_aggregated_gradients = true});
    });
    expect_close(together, weights_of(model), 1e-5);
  });
}

TEST(HvdTraining, BroadcastVariablesMakesRanksEqual) {
  expect_hvd(3, [](int rank) {
    random::set_seed(static_cast<std::uint64_t>(rank));
    Sequential model({layers::Dense(4, {.input_shape = {3}}), layers::Dense(2)});
    auto optimizer = optimizers::SGD({.learning_rate = 0.1, .momentum = 0.9});
    optimizer.minimize(reduce_sum(model(ones({1, 3}))), model.trainable_variables());
    std::vector<Variable> variables = model.variables();
    for (const Variable& variable : optimizer.variables()) variables.push_back(variable);
    hvd::broadcast_variables(variables, 1);
    for (const Variable& variable : variables) {
      const auto all = values_of(hvd::allgather(reshape(variable.value(), {1, -1})));
      const std::size_t each = all.size() / 3;
      for (std::size_t i = 0; i < each; ++i) {
        EXPECT_EQ(all[i], all[i + each]);
        EXPECT_EQ(all[i], all[i + 2 * each]);
      }
    }
  });
}

// --- fit ---

TEST(HvdTraining, FitTrainsTogether) {
  for (bool eagerly : {false, true})
    expect_hvd(2, [&](int rank) {
      const auto fit = [&](int rank, int ranks, bool distributed) {
        const Data data = make_data();
        Sequential model = make_model();
        optimizers::Optimizer optimizer = optimizers::SGD({.learning_rate = 0.1, .momentum = 0.9});
        if (distributed) {
          optimizer = hvd::DistributedOptimizer(optimizer);
          if (rank == 1)  // the broadcast callback corrects it
            for (Variable variable : model.variables()) variable.assign(variable.value() + 1.0);
        }
        model.compile({.optimizer = optimizer,
                       .loss = losses::SparseCategoricalCrossentropy({.from_logits = true}),
                       .run_eagerly = eagerly});
        const auto mine = data::Dataset::from_tensor_slices(
                              {slice(data.x, {0, 0}, {48, -1}), slice(data.y, {0}, {48})})
                              .shard(ranks, rank)
                              .batch(12 / ranks);
        FitOptions options{.epochs = 10, .verbose = 0};
        if (distributed) options.callbacks.push_back(hvd::callbacks::BroadcastGlobalVariables(0));
        model.fit(mine, options);
        return weights_of(model);
      };
      expect_close(fit(rank, 2, true), fit(0, 1, false), 1e-5);
    });
}

TEST(HvdTraining, StepsThatCannotBeTracedThrow) {
  expect_hvd(2, [](int) {
    Sequential model = make_model();
    const Data data = make_data();
    auto optimizer = hvd::DistributedOptimizer(optimizers::SGD(), {.backward_passes_per_step = 2});
    model.compile({.optimizer = optimizer,
                   .loss = losses::SparseCategoricalCrossentropy({.from_logits = true})});
    expect_error<UnimplementedError>([&] { model.fit(data.x, data.y, {.verbose = 0}); },
                                     ".run_eagerly = true");
  });
}

TEST(HvdTraining, ReplicaInvariantSumsAreRefused) {
  expect_hvd(1, [](int) {
    config::set_replica_invariant_parts(4);
    const Variable weight(ones({2}));
    optimizers::Optimizer optimizer =
        hvd::DistributedOptimizer(optimizers::SGD({.learning_rate = 0.1}));
    expect_error<UnimplementedError>(
        [&] { optimizer.minimize(reduce_sum(weight.value()), {weight}); },
        "but not by Horovod's DistributedOptimizer");
  });
}

}  // namespace
}  // namespace tandem::training_test
