// DistributedDataParallel: training on several ranks equals one process.
#include "tandem/ddp.h"

#include <gtest/gtest.h>

#include "parallel/ddp_models.h"
#include "support/process_groups.h"
#include "support/tensors.h"
#include "tensor/tensor_impl.h"

namespace tandem::ddp_test {
namespace {

using parallel::DistributedDataParallel;
using namespace testing;

optimizers::Optimizer momentum(const Model& model) {
  return optimizers::SGD({.learning_rate = 0.1, .momentum = 0.9}, model.parameters());
}

void step(const std::function<Tensor(const Tensor&)>& model, optimizers::Optimizer& optimizer,
          const Examples& batch) {
  const Tensor loss = loss_of(model(batch.x), batch.y);
  optimizer.zero_grad();
  loss.backward();
  optimizer.step();
}

// 52 steps in epochs of 27 examples, in batches of 8, 8, 8 and 3.
constexpr int kEpochs = 13;
constexpr std::int64_t kExamples = 27, kBatch = 8;

Weights train_alone() {
  const Examples data = examples(kExamples);
  Sequential model = perceptron(5);
  auto optimizer = momentum(model);
  for (int epoch = 0; epoch < kEpochs; ++epoch)
    for (std::int64_t begin = 0; begin < kExamples; begin += kBatch)
      step([&](const Tensor& x) { return model.forward(x); }, optimizer,
           data.rows(begin, std::min(begin + kBatch, kExamples)));
  return weights_of(model);
}

// The same batches, each split over the ranks. A rank that would get no examples has finished
// its epoch.
Weights train_together(int rank, int ranks,
                       const parallel::DistributedDataParallelOptions& options = {}) {
  const Examples data = examples(kExamples);
  // Only rank 0's initial values count.
  const DistributedDataParallel model(perceptron(static_cast<std::uint64_t>(5 + rank)), options);
  auto optimizer = momentum(model);
  const auto epoch = [&] {
    for (std::int64_t begin = 0; begin < kExamples; begin += kBatch) {
      const auto split = distribute::BatchSplit::even(std::min(kBatch, kExamples - begin), ranks);
      const auto me = static_cast<std::size_t>(rank);
      if (split.counts[me] == 0) break;
      const std::int64_t mine = begin + split.offsets[me];
      step([&](const Tensor& x) { return model(x); }, optimizer,
           data.rows(mine, mine + split.counts[me]));
    }
  };
  for (int i = 0; i < kEpochs; ++i) model.join(epoch, {.shadow_step = [&] { optimizer.step(); }});
  return weights_of(model.module());
}

TEST(DistributedDataParallel, RanksEqualOneProcess) {
  for (int ranks = 1; ranks <= 4; ++ranks)
    expect_group({.size = ranks},
                 [&](int rank) { expect_near(train_together(rank, ranks), train_alone()); });
}

TEST(DistributedDataParallel, AFrozenLayerIsNotTrained) {
  for (const bool traced : {false, true})
    expect_group({.size = 2}, [&](int rank) {
      const Examples data = examples(8, static_cast<std::uint64_t>(rank));
      const DistributedDataParallel model(perceptron(5));
      const Layer first = model.module().layers()[0];
      auto optimizer =
          optimizers::AdamW({.learning_rate = 0.1, .weight_decay = 0.5}, model.parameters());
      const auto eager = [&](const Tensor& x, const Tensor& y) {
        step([&](const Tensor& input) { return model(input, {.training = true}); }, optimizer,
             {x, y});
        return x;
      };
      const auto program = function(eager);
      const auto train = [&] { traced ? program(data.x, data.y) : eager(data.x, data.y); };
      const auto kernel = [&] { return first.variables()[0].value().to_vector<float>(); };
      train();
      first.set_trainable(false);
      const std::vector<float> before = kernel();
      const Weights others = weights_of(model.module());
      train();
      EXPECT_EQ(kernel(), before);
      EXPECT_NE(weights_of(model.module()), others);
      first.set_trainable(true);
      train();
      EXPECT_NE(kernel(), before);
    });
}

TEST(DistributedDataParallel, ALayerThatWasFrozenBeforeStaysSo) {
  expect_group({.size = 2}, [&](int) {
    const Sequential net = perceptron(5);
    net.layers()[0].set_trainable(false);
    const DistributedDataParallel model(net);
    EXPECT_EQ(model.parameters().size(), 4U);
    model(examples(2).x);
    net.layers()[0].set_trainable(true);
    testing::expect_error<FailedPreconditionError>(
        [&] { model(examples(2).x); }, "was frozen when DistributedDataParallel was made");
  });
}

TEST(DistributedDataParallel, SmallBucketsAndOtherBackendsGiveTheSame) {
  TANDEM_REQUIRE(has_gloo(), "gloo");
  expect_group({.size = 3, .backend = "gloo"}, [&](int rank) {
    expect_near(train_together(rank, 3, {.bucket_cap_mb = 1, .find_unused_parameters = true}),
                train_alone());
  });
}

TEST(DistributedDataParallel, TheSameBitsEveryRunAndOnEveryRank) {
  const testing::TemporaryDirectory folder;
  for (int run = 0; run < 2; ++run)
    expect_group({.size = 3}, [&](int rank) {
      train_together(rank, 3);
      const DistributedDataParallel model(perceptron(5));
      const Weights weights = train_together(rank, 3);
      std::string bytes;
      for (const auto& tensor : weights)
        bytes.append(reinterpret_cast<const char*>(tensor.data()), tensor.size() * sizeof(float));
      for (const std::string& other : comm::all_gather_object(bytes)) EXPECT_EQ(other, bytes);
      if (rank == 0) testing::write_file(folder / std::to_string(run), bytes);
    });
  EXPECT_FALSE(testing::read_file(folder / "0").empty());
  EXPECT_EQ(testing::read_file(folder / "0"), testing::read_file(folder / "1"));
}

TEST(DistributedDataParallel, WithoutWeightsEveryRankCountsTheSame) {
  expect_group({.size = 2}, [](int rank) {
    const Examples data = examples(4);
    const Examples mine = rank == 0 ? data.rows(0, 3) : data.rows(3, 4);
    const DistributedDataParallel model(perceptron(5), {.average_by_examples = false});
    loss_of(model(mine.x), mine.y).backward();
    const Model alone = perceptron(5);
    const Tensor mean = (loss_of(alone(data.rows(0, 3).x), data.rows(0, 3).y) +
                         loss_of(alone(data.rows(3, 4).x), data.rows(3, 4).y)) *
                        0.5;
    mean.backward();
    for (std::size_t i = 0; i < alone.parameters().size(); ++i)
      testing::expect_close(model.parameters()[i].grad(), alone.parameters()[i].grad());
  });
}

TEST(DistributedDataParallel, NoSyncAccumulates) {
  expect_group({.size = 2}, [](int rank) {
    const Examples data = examples(12);
    const auto part = [&](int of_rank, int micro) {
      const std::int64_t begin = of_rank * 6 + micro * 2;
      return data.rows(begin, begin + 2);
    };
    const DistributedDataParallel model(perceptron(5));
    const Model alone = perceptron(5);
    for (int round = 0; round < 2; ++round) {
      for (Variable parameter : model.parameters()) parameter.zero_grad();
      for (Variable parameter : alone.parameters()) parameter.zero_grad();
      {
        const auto local = model.no_sync();
        for (int micro = 0; micro < 2; ++micro)
          loss_of(model(part(rank, micro).x), part(rank, micro).y).backward();
      }
      for (int micro = 0; micro < 2; ++micro)
        loss_of(alone(part(rank, micro).x), part(rank, micro).y).backward();
      for (std::size_t i = 0; i < alone.parameters().size(); ++i)  // this rank's gradients so far
        EXPECT_EQ(model.parameters()[i].grad().to_vector<float>(),
                  alone.parameters()[i].grad().to_vector<float>());
      loss_of(model(part(rank, 2).x), part(rank, 2).y).backward();
      for (Variable parameter : alone.parameters()) parameter.zero_grad();
      for (int of_rank = 0; of_rank < 2; ++of_rank)
        for (int micro = 0; micro < 3; ++micro)
          (loss_of(alone(part(of_rank, micro).x), part(of_rank, micro).y) * 0.5).backward();
      for (std::size_t i = 0; i < alone.parameters().size(); ++i)
        testing::expect_close(model.parameters()[i].grad(), alone.parameters()[i].grad());
    }
  });
}

TEST(DistributedDataParallel, BuffersAreBroadcastFromRankZero) {
  expect_group({.size = 2}, [](int rank) {
    const DistributedDataParallel model(
        Sequential({layers::BatchNormalization({.input_shape = {3}}), layers::Dense(2)}));
    const auto moments = [&] { return model.module().non_trainable_variables(); };
    for (int round = 0; round < 3; ++round) {
      random::set_seed(static_cast<std::uint64_t>(10 * rank + round));
      const Tensor before = moments()[0].value();
      const auto all = comm::all_gather(before);
      reduce_sum(model(random::normal({8, 3}), {.training = true})).backward();
      const auto after = comm::all_gather(moments()[0].value());
      if (round == 0) continue;
      EXPECT_NE(all[0].to_vector<float>(), all[1].to_vector<float>());
      EXPECT_NE(after[0].to_vector<float>(), after[1].to_vector<float>());
    }
    // The next forward pass starts with rank 0's buffers.
    const auto before = comm::all_gather(moments()[0].value());
    model(zeros({8, 3}));
    EXPECT_EQ(moments()[0].value().to_vector<float>(), before[0].to_vector<float>());
  });
}

TEST(DistributedDataParallel, GradientsThatAreKeptKeepTheirElements) {
  expect_group({.size = 2}, [](int rank) {
    const Examples data = examples(8);
    const DistributedDataParallel model(perceptron(5));
    std::vector<Tensor> kept;
    std::vector<std::vector<float>> expected;
    for (int round = 0; round < 4; ++round) {
      for (Variable parameter : model.parameters()) parameter.zero_grad();
      const Examples mine = data.rows(2 * round, 2 * round + 1 + rank);
      loss_of(model(mine.x), mine.y).backward();
      kept.push_back(model.parameters()[0].grad());
      expected.push_back(kept.back().to_vector<float>());
    }
    for (std::size_t i = 0; i < kept.size(); ++i)
      EXPECT_EQ(kept[i].to_vector<float>(), expected[i]);
    EXPECT_NE(expected[0], expected[1]);
  });
}

TEST(DistributedDataParallel, GradientsAreComputedInTheirBucketAlsoOfSharedLayers) {
  expect_group({.size = 2}, [](int rank) {
    const auto make = [] {
      random::set_seed(5);
      const Layer shared = layers::Dense(4);
      const SymbolicInput input = Input({4});
      return Functional(input, layers::Dense(2)(shared(layers::ReLU()(shared(input)))));
    };
    const DistributedDataParallel model(make());
    const Model alone = make();
    random::set_seed(3);
    const Tensor x = random::normal({8, 4});
    std::vector<const void*> memory;
    for (int round = 0; round < 4; ++round) {
      // The last batch is uneven, so gradients are weighted in their bucket.
      const std::int64_t middle = round == 3 ? 5 : 4;
      const Tensor mine = rank == 0 ? slice_rows(x, 0, middle) : slice_rows(x, middle, 8);
      for (Variable parameter : model.parameters()) parameter.zero_grad();
      for (Variable parameter : alone.parameters()) parameter.zero_grad();
      reduce_mean(square(model(mine))).backward();
      reduce_mean(square(alone(x))).backward();
      for (std::size_t i = 0; i < alone.parameters().size(); ++i)
        testing::expect_close(model.parameters()[i].grad(), alone.parameters()[i].grad());
      memory.push_back(impl_of(model.parameters()[0].grad()).data());
    }
    EXPECT_EQ(memory[1], memory[2]);
    EXPECT_EQ(memory[2], memory[3]);
  });
}

TEST(DistributedDataParallel, EvaluatesOnOneRankAlone) {
  expect_group({.size = 2}, [](int rank) {
    const DistributedDataParallel model(
        Sequential({layers::BatchNormalization({.input_shape = {3}}), layers::Dense(2)}));
    if (rank == 1) {
      const NoGradScope no_grad;
      model(ones({4, 3}));
    }
    reduce_sum(model(ones({4, 3}))).backward();
    EXPECT_TRUE(model.parameters()[0].grad().defined());
  });
}

TEST(DistributedDataParallel, TheHandleCanBeCopiedAsAModel) {
  const testing::TemporaryDirectory folder;
  expect_group({.size = 2}, [&](int rank) {
    const DistributedDataParallel model(perceptron(static_cast<std::uint64_t>(rank)));
    const auto path = folder / std::to_string(rank);
    save_weights(model, path);
    Sequential other = perceptron(77);
    other.load_weights(path);
    EXPECT_EQ(weights_of(other), weights_of(model));
    EXPECT_EQ(weights_of(other), weights_of(perceptron(0)));  // rank 0's
  });
}

// --- traced ---

TEST(DistributedDataParallel, ATracedStepEqualsTheEagerOne) {
  for (const auto& [ranks, with_moments] :
       {std::pair(2, false), std::pair(2, true), std::pair(3, false)})
    expect_group({.size = ranks}, [&, with_moments = with_moments](int rank) {
      const auto train = [&](bool traced) {
        random::set_seed(5);
        Sequential layers(
            {layers::Dense(16, {.activation = "relu", .input_shape = {6}}), layers::Dense(3)});
        if (with_moments)
          layers = Sequential({layers::Dense(16, {.input_shape = {6}}),
                               layers::BatchNormalization(), layers::Dense(3)});
        const DistributedDataParallel model(layers);
        auto optimizer = momentum(model);
        const auto body = [&](const Tensor& x, const Tensor& y) {
          optimizer.zero_grad();
          const Tensor loss = loss_of(model(x, {.training = true}), y);
          loss.backward();
          optimizer.step();
          return loss;
        };
        const auto replayed = function(body);
        const Examples data = examples(40);
        for (int i = 0; i < 12; ++i) {
          const std::int64_t count = i % 4 == 3 ? 1 + rank : 3;  // uneven at times
          const Examples mine = data.rows(3 * i + rank, 3 * i + rank + count);
          if (traced)
            replayed(mine.x, mine.y);
          else
            body(mine.x, mine.y);
        }
        return weights_of(model);
      };
      expect_near(train(true), train(false));
    });
}

// A step in two halves; the gradients of the first one stay on the rank.
TEST(DistributedDataParallel, ATracedStepAccumulatesUnderNoSync) {
  expect_group({.size = 2}, [&](int rank) {
    const auto train = [&](bool traced) {
      random::set_seed(5);
      const DistributedDataParallel model(Sequential(
          {layers::Dense(16, {.activation = "relu", .input_shape = {6}}), layers::Dense(3)}));
      auto optimizer = momentum(model);
      const auto body = [&](const Tensor& x1, const Tensor& y1, const Tensor& x2,
                            const Tensor& y2) {
        optimizer.zero_grad();
        {
          const auto local = model.no_sync();
          loss_of(model(x1, {.training = true}), y1).backward();
        }
        loss_of(model(x2, {.training = true}), y2).backward();
        optimizer.step();
        return x1;
      };
      const auto replayed = function(body);
      const Examples data = examples(40);
      for (int i = 0; i < 10; ++i) {
        const Examples first = data.rows(3 * i + rank, 3 * i + rank + 2 + rank),
                       second = data.rows(2 * i + rank, 2 * i + rank + 3);
        if (traced)
          replayed(first.x, first.y, second.x, second.y);
        else
          body(first.x, first.y, second.x, second.y);
      }
      return weights_of(model);
    };
    expect_near(train(true), train(false));
  });
}

// A step under no_sync() is another trace, which does not communicate.
TEST(DistributedDataParallel, NoSyncAroundATracedStepIsAnotherTrace) {
  expect_group({.size = 2}, [&](int rank) {
    random::set_seed(5);
    const DistributedDataParallel model(Sequential({layers::Dense(3, {.input_shape = {6}})}));
    auto optimizer = momentum(model);
    int traces = 0;
    const auto step = function([&](const Tensor& x, const Tensor& y) {
      ++traces;
      optimizer.zero_grad();
      const Tensor loss = loss_of(model(x, {.training = true}), y);
      loss.backward();
      optimizer.step();
      return loss;
    });
    const Examples mine = examples(40).rows(5 * rank, 5 * rank + 4);
    step(mine.x, mine.y);
    const auto together = comm::all_gather(model.parameters()[0].value());
    EXPECT_EQ(testing::values_of(together[0]), testing::values_of(together[1]));
    {
      const auto local = model.no_sync();
      for (int i = 0; i <= rank; ++i)
        step(mine.x, mine.y);  // ranks may take different numbers of steps
    }
    EXPECT_EQ(traces, 2);
    const auto apart = comm::all_gather(model.parameters()[0].value());
    EXPECT_NE(testing::values_of(apart[0]), testing::values_of(apart[1]));
    step(mine.x, mine.y);
    EXPECT_EQ(traces, 2);
  });
}

TEST(DistributedDataParallel, NoSyncTracesNoOtherFunctionAnew) {
  expect_group({.size = 1}, [&](int) {
    const DistributedDataParallel model(Sequential({layers::Dense(2, {.input_shape = {2}})}));
    const DistributedDataParallel other(Sequential({layers::Dense(2, {.input_shape = {2}})}));
    const auto squares = function([](const Tensor& x) { return reduce_sum(x * x); });
    auto optimizer = momentum(other.module());
    const auto gradients = function([&](const Tensor& x) {
      optimizer.zero_grad();
      reduce_sum(other(x)).backward();
    });
    const Tensor x = ones({3, 2});
    const auto call = [&] {
      squares(x);
      gradients(x);
    };
    call();
    {
      const auto local = model.no_sync();
      call();
    }
    call();
    EXPECT_EQ(squares.num_traces(), 1u);
    EXPECT_EQ(gradients.num_traces(), 1u);
    for (int i = 0; i < 2; ++i) {
      const auto local = other.no_sync();
      call();
    }
    call();
    EXPECT_EQ(squares.num_traces(), 1u);
    EXPECT_EQ(gradients.num_traces(), 2u);
  });
}

}  // namespace
}  // namespace tandem::ddp_test
