// Rows that workers look up and update alone, compared with one device.
#include <gtest/gtest.h>

#include <functional>

#include "ps/in_process.h"
#include "support/tensors.h"

namespace tandem::ps::rows_test {
namespace {

using tandem::testing::expect_error;
using testing::InProcess;
using testing::trace;
using MakeOptimizer = std::function<optimizers::Optimizer()>;
using Tensors = std::vector<Tensor>;

constexpr std::int64_t kWords = 40;

// Unsorted word numbers of which some are repeated, and targets.
Tensors batch(std::uint64_t number) {
  Generator generator({.seed = 3, .offset = number << 8});
  const Scoped scope(context.generator, &generator);
  const Tensor words = cast(random::uniform({8, 3}, 0.0, 12.0), int32) * 3;
  return {words, random::normal({8, 1})};
}

struct Training {
  explicit Training(const MakeOptimizer& make) : optimizer(make()) {
    random::set_seed(5);
    embedding = layers::Embedding(kWords, 4, {.name = "table"});
    dense = layers::Dense(1, {.name = "dense"});
    dense(reduce_mean(embedding(batch(0)[0]), {.axis = {1}}));
  }
  Tensors step(const Tensors& inputs) {
    GradientTape tape;
    const Tensor out = dense(reduce_mean(embedding(inputs[0]), {.axis = {1}}));
    const Tensor loss = reduce_mean(losses::mse(inputs[1], out));
    const std::vector<Variable> variables = {embedding.trainable_variables()[0],
                                             dense.trainable_variables()[0],
                                             dense.trainable_variables()[1]};
    optimizer.apply_gradients(tape.gradient(loss, variables), variables);
    return {loss};
  }
  Layer embedding, dense;
  optimizers::Optimizer optimizer;
};

struct Case {
  const char* name;
  MakeOptimizer make;
};

class EmbeddingTraining : public ::testing::TestWithParam<std::tuple<Case, std::int64_t>> {};

TEST_P(EmbeddingTraining, GivesTheBitsOfTheFunction) {
  const MakeOptimizer& make = std::get<0>(GetParam()).make;
  Training whole(make), parts(make);
  const auto function = tandem::function([&](const Tensor& x, const Tensor& y) {
    return whole.step({x, y})[0];
  });
  InProcess run(trace([&](const auto& inputs) { return parts.step(inputs); }, batch(0)), 2,
                std::get<1>(GetParam()));
  ASSERT_EQ(run.message().row_reads_size(), 1);
  ASSERT_EQ(run.message().row_gradients_size(), 1);
  for (std::uint64_t i = 0; i < 6; ++i) {
    const Tensors inputs = batch(i);
    EXPECT_EQ(run.run(inputs, i)[0].item<float>(), function(inputs[0], inputs[1]).item<float>());
  }
  const Variable table = whole.embedding.trainable_variables()[0];
  EXPECT_EQ(run.variable(table.name()).to_vector<float>(), table.value().to_vector<float>());
  EXPECT_GT(run.servers[0].by_method.count(kReadRows), 0u);
}

const Case kCases[] = {
    {"sgd", [] { return optimizers::SGD(0.5); }},
    {"decayed_sgd", [] { return optimizers::SGD({.learning_rate = 0.5, .weight_decay = 0.1}); }},
    {"momentum", [] { return optimizers::SGD({.learning_rate = 0.1, .momentum = 0.9}); }},
    {"adam", [] { return optimizers::Adam(0.05); }},
    {"adagrad", [] { return optimizers::Adagrad({.learning_rate = 0.1}); }},
    {"rmsprop", [] { return optimizers::RMSprop({.learning_rate = 0.05}); }},
    {"clipped_by_value", [] { return optimizers::SGD({.learning_rate = 0.5, .clipvalue = 0.01}); }},
    {"clipped_by_norm", [] { return optimizers::SGD({.learning_rate = 0.5, .clipnorm = 0.01}); }},
    {"clipped_by_global_norm",
     [] { return optimizers::Adagrad({.learning_rate = 0.5, .global_clipnorm = 0.01}); }}};

INSTANTIATE_TEST_SUITE_P(All, EmbeddingTraining,
                         ::testing::Combine(::testing::ValuesIn(kCases),
                                            ::testing::Values<std::int64_t>(1, 2, 3)),
                         [](const auto& info) {
                           return fmt::format("{}_{}_shards", std::get<0>(info.param).name,
                                              std::get<1>(info.param));
                         });

// A step of a function of a table and word numbers: the gradient of sum(weights * result).
class Tables : public ::testing::Test {
 protected:
  static constexpr std::int64_t kRows = 30, kColumns = 4;
  using Call = std::function<Tensor(const Variable& table, const Tensors& inputs)>;

  struct Options {
    std::int64_t shards = 2;
    bool reads_rows = true, sends_rows = true;
    MakeOptimizer make = [] { return optimizers::SGD(0.5); };
    DType dtype = float32;
  };

  // Compares a few steps with those of one device.
  static void compare(const Call& call, const Tensors& inputs, const Options& options) {
    const auto initial = [&] {
      Generator generator({.seed = 9});
      const Scoped scope(context.generator, &generator);
      return cast(random::normal({kRows, kColumns}), options.dtype);
    }();
    Variable one(initial, {.name = "table"}), many(initial, {.name = "table"});
    auto optimizer_of_one = options.make(), optimizer_of_many = options.make();
    const auto step = [&](Variable& table, optimizers::Optimizer& optimizer, const Tensors& args) {
      GradientTape tape;
      const Tensor loss = call(table, args);
      optimizer.apply_gradients({tape.gradient(loss, table)}, {table});
      return loss;
    };
    InProcess run(
        trace([&](const Tensors& args) { return Tensors{step(many, optimizer_of_many, args)}; },
              inputs),
        2, options.shards);
    EXPECT_EQ(run.message().row_reads_size() > 0, options.reads_rows);
    EXPECT_EQ(run.message().updates(0).inputs(0).has_row_gradient(), options.sends_rows);
    const auto function =
        tandem::function([&](const Tensors& args) { return step(one, optimizer_of_one, args); });
    for (std::uint64_t i = 0; i < 3; ++i)
      EXPECT_EQ(cast(run.run(inputs, i)[0], float32).item<float>(),
                cast(function(inputs), float32).item<float>());
    EXPECT_EQ(cast(run.variable("table"), float32).to_vector<float>(),
              cast(one.value(), float32).to_vector<float>());
  }

  static Tensor words() { return constant({17, 3, 29, 3, 0, 17, 3, 11}); }
  static Tensor weights(const Tensor& of) {
    return reshape(range(0.0, static_cast<double>(of.size()), 1.0, {.dtype = of.dtype()}),
                   of.shape()) *
               0.01 -
           0.1;
  }
  static Tensor weighted(const Tensor& rows) { return reduce_sum(rows * weights(rows)); }
};

TEST_F(Tables, LookUpsOfAnyShapeAndIndexType) {
  const Call call = [](const Variable& table, const Tensors& in) {
    return weighted(gather(table, in[0], 0));
  };
  compare(call, {words()}, {});
  compare(call, {cast(words(), int64)}, {.shards = 3});
  compare(call, {reshape(words(), {2, 2, 2})}, {});
  compare(call, {constant(5)}, {});
  compare(call, {zeros({0, 3}, {.dtype = int32})}, {});
  compare(
      [](const Variable& table, const Tensors& in) { return weighted(gather(table, in[0], -2)); },
      {words()}, {});
}

TEST_F(Tables, SixteenBitRows) {
  compare(
      [](const Variable& table, const Tensors& in) { return weighted(gather(table, in[0], 0)); },
      {words()}, {.dtype = bfloat16});
}

TEST_F(Tables, SeveralLookUpsOfOneTable) {
  const Call call = [](const Variable& table, const Tensors& in) {
    const Tensor first = gather(table, in[0], 0), second = gather(table, in[1], 0);
    return weighted(first) + reduce_sum(square(second));
  };
  const Tensors inputs = {words(), constant({{3, 4}, {29, 3}})};
  for (const std::int64_t shards : {1, 3}) {
    compare(call, inputs, {.shards = shards});
    compare(call, inputs, {.shards = shards, .make = [] { return optimizers::Adam(0.1); }});
  }
}

TEST_F(Tables, IndicesAreComputedFromArguments) {
  compare(
      [](const Variable& table, const Tensors& in) {
        return weighted(gather(table, cast(in[0] * 2.0 + 1.0, int32), 0));
      },
      {constant({3.0f, 1.0f, 14.0f, 1.0f})}, {});
}

TEST_F(Tables, ScaledGradients) {
  for (const std::int64_t shards : {1, 2})
    compare([](const Variable& table,
               const Tensors& in) { return weighted(gather(table, in[0], 0)) * 0.25; },
            {words()}, {.shards = shards, .make = [] {
                          return optimizers::Adagrad({.learning_rate = 0.1, .clipvalue = 0.05});
                        }});
}

// Batches of several sizes run one trace.
TEST_F(Tables, BatchesOfUnknownSize) {
  const auto step = [](const Variable& table, optimizers::Optimizer& optimizer,
                       const Tensor& words) {
    const Tensor rows = gather(table, words, 0);
    const Tensor loss = reduce_sum(square(rows) * 0.3) + reduce_sum(gather(table, words + 0, 0));
    optimizer.minimize(loss, {table});
    return loss;
  };
  const FunctionOptions options{.name = "step",
                                .input_signature = {{.shape = {-1, 2}, .dtype = int32}}};
  Variable one(ones({kRows, kColumns}), {.name = "table"}), many(one.value(), {.name = "table"});
  auto of_one = optimizers::SGD({.learning_rate = 0.1, .clipvalue = 0.9}),
       of_many = optimizers::SGD({.learning_rate = 0.1, .clipvalue = 0.9});
  InProcess run(trace([&](const Tensors& in) { return Tensors{step(many, of_many, in[0])}; },
                      {constant({{1, 2}})}, options),
                2, 2);
  ASSERT_EQ(run.message().row_gradients_size(), 1);
  ASSERT_TRUE(run.message().row_gradients(0).has_formula());
  const auto function =
      tandem::function([&](const Tensor& words) { return step(one, of_one, words); });
  const Tensors batches = {constant({{1, 2}, {29, 2}}), constant({{2, 2}}),
                           zeros({0, 2}, {.dtype = int32}), constant({{1, 2}, {7, 3}, {3, 7}})};
  for (std::size_t i = 0; i < batches.size(); ++i)
    EXPECT_EQ(run.run({batches[i]}, i)[0].item<float>(), function(batches[i]).item<float>());
  EXPECT_EQ(run.variable("table").to_vector<float>(), one.value().to_vector<float>());
}

// Updates that a program writes by hand: the server puts the rows into a whole gradient.
TEST_F(Tables, AssignedGradients) {
  using Change = std::function<Tensor(const Tensor&)>;
  const auto compare = [](const Change& change, bool sends_rows) {
    const auto step = [&](Variable& table, const Tensor& words) {
      GradientTape tape;
      const Tensor loss = weighted(gather(table, words, 0));
      table.assign_sub(change(tape.gradient(loss, table)));
      return loss;
    };
    Variable one(ones({kRows, kColumns}), {.name = "table"}), many(one.value(), {.name = "table"});
    InProcess run(trace([&](const Tensors& in) { return Tensors{step(many, in[0])}; }, {words()}),
                  2, 3);
    EXPECT_EQ(run.message().updates(0).inputs(0).has_row_gradient(), sends_rows);
    const auto function = tandem::function([&](const Tensor& words) { return step(one, words); });
    for (std::uint64_t i = 0; i < 3; ++i)
      EXPECT_EQ(run.run({words()}, i)[0].item<float>(), function(words()).item<float>());
    EXPECT_EQ(run.variable("table").to_vector<float>(), one.value().to_vector<float>());
  };
  compare([](const Tensor& g) { return g * 0.1; }, true);
  compare([](const Tensor& g) { return -(g / 3.0) * constant({1.0f, 2.0f, 3.0f, 4.0f}); }, true);
  compare([](const Tensor& g) { return g * 0.5 + cast(cast(g, float64), float32); }, true);
  // Elements that are 0 do not stay 0, or the factor differs from row to row.
  compare([](const Tensor& g) { return g + 0.1; }, false);
  compare([](const Tensor& g) { return clip_by_value(g, 0.01, 1.0); }, false);
  compare([](const Tensor& g) { return exp(g); }, false);
  compare([](const Tensor& g) { return 2.0 / (g + 1.0); }, false);
  compare([](const Tensor& g) { return g * reshape(range(0.0, 30.0), {kRows, 1}); }, false);
}

// Where the pattern is not met, whole variables are read and whole gradients are sent.
TEST_F(Tables, OtherUsesReadTheWholeTable) {
  const Options whole{.reads_rows = false, .sends_rows = false};
  // As tied embeddings.
  compare(
      [](const Variable& table, const Tensors& in) {
        return weighted(matmul(gather(table, in[0], 0), transpose(table)));
      },
      {words()}, whole);
  compare(
      [](const Variable& table, const Tensors& in) { return weighted(gather(table, in[0], 1)); },
      {constant({0, 3, 3})}, whole);
  // The indices depend on a variable.
  compare(
      [](const Variable& table, const Tensors& in) {
        const Tensor best = argmax(stop_gradient(Tensor(table)), 0);
        return weighted(gather(table, best, 0)) + reduce_sum(in[0]);
      },
      {ones({2})}, {.reads_rows = false});
  // In a branch.
  compare(
      [](const Variable& table, const Tensors& in) {
        return cond(
            in[1], [&] { return weighted(gather(table, in[0], 0)); },
            [&] { return weighted(Tensor(table)); });
      },
      {words(), constant(true)}, whole);
}

TEST_F(Tables, IndicesOutOfRangeAreTheErrorOfGather) {
  Variable table(ones({kRows, kColumns}), {.name = "table"});
  InProcess run(
      trace([&](const Tensors& in) { return Tensors{gather(table, in[0], 0)}; }, {words()}), 2, 2);
  EXPECT_EQ(run.run({words()}, 0)[0].shape(), Shape({8, kColumns}));
  for (const int wrong : {-1, 30})
    expect_error<InvalidArgumentError>(
        [&] {
          run.run({constant({1, 2, wrong, 3, 4, 5, 6, 7})}, 1);
        },
        fmt::format("[GatherV2] expected indices of [0, 30), got {} at position 2", wrong));
}

// Messages may come from anyone: a change of any byte gives a function that runs, or an error.
TEST_F(Tables, CorruptFunctionsAreErrors) {
  Variable table(ones({kRows, kColumns}), {.name = "table"});
  auto sgd = optimizers::SGD({.learning_rate = 0.1, .clipvalue = 0.5});
  InProcess run(trace(
                    [&](const Tensors& in) {
                      sgd.minimize(weighted(gather(table, in[0] + 0, 0)), {table});
                      return Tensors();
                    },
                    {words()}),
                1, 2);
  const std::string good = run.message().SerializeAsString();
  int refused = 0;
  for (std::size_t at = 0; at < good.size(); ++at)
    for (const int change : {1, 0x80}) {
      std::string bytes = good;
      bytes[at] = static_cast<char>(bytes[at] ^ change);
      proto::Function function;
      if (!function.ParseFromString(bytes)) continue;
      try {
        run.worker->add_function(100 + at, function);
        FunctionRun closure{.function = 100 + at, .arguments = {words()}};
        closure.update_attributes.resize(2);
        run.worker->run(closure);
      } catch (const Error&) {
        ++refused;
      }
      for (auto& store : run.stores) {
        try {
          store.add_update(
              100 + at, 0,
              function.updates_size() > 0 ? function.updates(0).part() : proto::Part());
        } catch (const Error&) {
          ++refused;
        }
      }
    }
  EXPECT_GT(refused, 100);
}

// Rows are read and sent, not tables: the bytes of a step do not depend on the size of the table.
TEST_F(Tables, BytesOfAStepAreThoseOfItsRows) {
  const auto bytes = [](std::int64_t rows, const MakeOptimizer& make, const Tensor& words) {
    Variable table(ones({rows, 64}), {.name = "table"});
    auto optimizer = make();
    const auto traced = trace(
        [&](const Tensors& in) {
          optimizer.minimize(reduce_sum(square(gather(table, in[0], 0))), {table});
          return Tensors();
        },
        {words});
    InProcess run(traced, 1, 1);
    run.run({words}, 0);
    const auto& server = run.servers[0];
    EXPECT_EQ(server.by_method.count(kRead), 0u);
    EXPECT_EQ(server.by_method.at(kReadRows).calls, 1u);
    const auto& read = server.by_method.at(kReadRows);
    const auto& applied = server.by_method.at(kApply);
    return std::vector<std::size_t>{read.sent, read.received, applied.sent, applied.received};
  };
  const Tensor five = constant({7, 3, 3, 900, 7, 12, 1});
  for (const MakeOptimizer& make : {MakeOptimizer([] { return optimizers::SGD(0.1); }),
                                    MakeOptimizer([] { return optimizers::Adam(0.1); })}) {
    const auto small = bytes(1'000, make, five);
    EXPECT_EQ(small, bytes(200'000, make, five));
    constexpr std::size_t kRowBytes = 5 * 64 * sizeof(float), kNumberBytes = 5 * 8;
    EXPECT_NEAR(static_cast<double>(small[0]), kNumberBytes, 100);
    EXPECT_NEAR(static_cast<double>(small[1]), kRowBytes, 100);
    EXPECT_NEAR(static_cast<double>(small[2]), kRowBytes + kNumberBytes, 400);
    EXPECT_LT(small[3], 100u);
  }
}

}  // namespace
}  // namespace tandem::ps::rows_test
