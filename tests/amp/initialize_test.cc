// Apex's optimization levels, and dtype policies.
#include <gtest/gtest.h>

#include <limits>

#include "support/errors.h"
#include "support/files.h"
#include "support/tensors.h"
#include "tandem/tandem.h"

namespace tandem::initialize_test {
namespace {

using testing::error_of;
using testing::values_of;

Sequential make_net() {
  return Sequential({layers::Dense(8, {.activation = "relu", .input_shape = {4}}),
                     layers::BatchNormalization(), layers::Dense(3)});
}

// The dtypes of the result, of the first kernel and of gamma, at a level.
struct DTypes {
  DType output, kernel, gamma;
  bool operator==(const DTypes&) const = default;
};

DTypes dtypes_at(const char* level) {
  const Sequential net = make_net();
  const auto [model, optimizer] = amp::initialize(net, optimizers::SGD(0.1, net.parameters()),
                                                  {.opt_level = level, .dtype = bfloat16});
  return {model(ones({2, 4}), true).dtype(), model.variables()[0].dtype(),
          model.variables()[2].dtype()};
}

TEST(Initialize, LevelsHaveApexsDTypes) {
  EXPECT_EQ(dtypes_at("O0"), (DTypes{float32, float32, float32}));
  EXPECT_EQ(dtypes_at("O1"), (DTypes{bfloat16, float32, float32}));
  EXPECT_EQ(dtypes_at("O2"), (DTypes{float32, float32, float32}));
  EXPECT_EQ(dtypes_at("O3"), (DTypes{float32, bfloat16, bfloat16}));
}

TEST(Initialize, LevelsHaveApexsLossScales) {
  for (const auto& [level, scale] : std::vector<std::pair<const char*, double>>{
           {"O0", 1}, {"O1", 65536}, {"O2", 65536}, {"O3", 1}}) {
    const Sequential net = make_net();
    const auto [model, optimizer] =
        amp::initialize(net, optimizers::SGD(0.1, net.parameters()), {.opt_level = level});
    EXPECT_EQ(optimizer.loss_scale(), scale) << level;
  }
}

TEST(Initialize, RefusesWhatApexRefuses) {
  const auto error = [](const amp::InitializeOptions& options) {
    const Sequential net = make_net();
    return error_of<InvalidArgumentError>(
        [&] { amp::initialize(net, optimizers::SGD(0.1, net.parameters()), options); });
  };
  EXPECT_NE(error({.opt_level = "O4"}).find("Unexpected optimization level O4"), std::string::npos);
  EXPECT_NE(error({.opt_level = "O1", .cast_model_type = float16})
                .find("O1 inserts casts around Torch functions rather than model weights"),
            std::string::npos);
  EXPECT_EQ(error({.opt_level = "O2", .patch_torch_functions = true}),
            "[initialize] Currently, patch_torch_functions=True should only be set by selecting "
            "opt_level='O1'.");
  EXPECT_NE(error({.opt_level = "O1", .master_weights = true})
                .find("It doesn't make sense to use master_weights with O1."),
            std::string::npos);
}

TEST(ScaleLoss, NeedsInitialize) {
  const Sequential net = make_net();
  const auto optimizer = optimizers::SGD(0.1, net.parameters());
  EXPECT_NE(error_of<FailedPreconditionError>([&] {
              amp::scale_loss(ones(Shape::scalar()), optimizer);
            }).find("internal Amp state has not been initialized"),
            std::string::npos);
}

TEST(ScaleLoss, LeavesUnscaledGradientsAndSkipsOverflows) {
  for (const char* level : {"O1", "O2"}) {
    SCOPED_TRACE(level);
    const Sequential net({layers::Dense(1, {.use_bias = false, .input_shape = {2}})});
    const Variable kernel = net.parameters()[0];
    Variable(kernel).assign(ones({2, 1}));
    auto [model, optimizer] = amp::initialize(net, optimizers::SGD(0.5, net.parameters()),
                                              {.opt_level = level, .dtype = bfloat16});
    const auto step = [&, &model = model, &optimizer = optimizer](double x) {
      optimizer.zero_grad();
      const Tensor loss = reduce_sum(cast(model(full({1, 2}, x)), float32));
      {
        const auto scaled = amp::scale_loss(loss, optimizer);
        scaled.backward();
      }
      const std::vector<double> gradient = values_of(kernel.grad());
      optimizer.step();
      return gradient;
    };
    EXPECT_EQ(step(1.0), std::vector<double>({1.0, 1.0}));
    EXPECT_EQ(values_of(kernel), std::vector<double>({0.5, 0.5}));
    step(std::numeric_limits<double>::infinity());
    EXPECT_EQ(values_of(kernel), std::vector<double>({0.5, 0.5}));
    EXPECT_EQ(optimizer.loss_scale(), 32768.0);
  }
}

TEST(ScaleLoss, AStepWithoutItTakesTheGradientsAsTheyAre) {
  for (const bool traced : {false, true}) {
    SCOPED_TRACE(traced);
    const Variable weight(ones({2}));
    auto optimizer = optimizers::SGD(0.5, {weight});
    amp::initialize(std::vector<Layer>{}, {optimizer});
    const auto plain = [&](const Tensor& x) {
      optimizer.zero_grad();
      const Tensor loss = reduce_sum(weight.value() * x);
      loss.backward();
      optimizer.step();
      return loss;
    };
    const auto by_method = [&](const Tensor& x) {
      optimizer.zero_grad();
      const Tensor loss = optimizer.scale_loss(reduce_sum(weight.value() * x));
      loss.backward();
      optimizer.step();
      return loss;
    };
    const auto traced_plain = function(plain);
    const auto traced_by_method = function(by_method);
    traced ? traced_plain(ones({2})) : plain(ones({2}));
    EXPECT_EQ(values_of(weight), std::vector<double>({0.5, 0.5})) << "as Apex";
    traced ? traced_by_method(ones({2})) : by_method(ones({2}));
    EXPECT_EQ(values_of(weight), std::vector<double>({0.0, 0.0}));
    const Tensor infinite = full({2}, std::numeric_limits<double>::infinity());
    traced ? traced_plain(infinite) : plain(infinite);
    EXPECT_EQ(values_of(weight), std::vector<double>({0.0, 0.0})) << "an overflow is skipped";
  }
}

TEST(ScaleLoss, TheStateOfSeveralLossesIsSaved) {
  const testing::TemporaryDirectory directory;
  const auto optimizer_of = [] {
    auto optimizer = optimizers::SGD(0.5, {Variable(ones({2}), {.name = "w"})});
    amp::initialize(std::vector<Layer>{}, {optimizer}, {.num_losses = 2});
    return optimizer;
  };
  auto first = optimizer_of(), second = optimizer_of();
  {
    const auto scaled = amp::scale_loss(
        reduce_sum(first.parameters()[0].value() * std::numeric_limits<double>::infinity()), first,
        {.loss_id = 1});
    scaled.backward();
  }
  first.step();
  std::vector<std::string> names;
  for (const Variable& variable : first.variables()) names.push_back(variable.name());
  EXPECT_EQ(names, (std::vector<std::string>{"iterations", "loss_scale", "good_steps",
                                             "loss_scale_1", "good_steps_1"}));
  second.build(second.parameters());
  Checkpoint({{"optimizer", first.variables()}}).save(directory / "state");
  Checkpoint({{"optimizer", second.variables()}}).restore(directory / "state");
  EXPECT_EQ(values_of(second.variables()[3].value()), values_of(first.variables()[3].value()));
}

TEST(ScaleLoss, GradientsOfSeveralLossesAdd) {
  const Variable weight(ones({2}));
  auto optimizer = optimizers::SGD(0.5, {weight});
  amp::initialize(std::vector<Layer>{}, {optimizer}, {.num_losses = 2});
  for (int loss = 0; loss < 2; ++loss) {
    const auto scaled = amp::scale_loss(reduce_sum(weight.value()), optimizer, {.loss_id = loss});
    scaled.backward();
  }
  EXPECT_EQ(values_of(weight.grad()), std::vector<double>({2.0, 2.0}));
  optimizer.step();
  EXPECT_EQ(values_of(weight), std::vector<double>({0.0, 0.0}));
}

TEST(DTypePolicy, LayersComputeAndStoreAsItSays) {
  const Layer dense = layers::Dense(3, {.dtype = "mixed_bfloat16"});
  EXPECT_EQ(dense(ones({2, 4})).dtype(), bfloat16);
  EXPECT_EQ(dense.variables()[0].dtype(), float32);
  EXPECT_EQ(layers::Dense(3, {.dtype = "float16"})(ones({2, 4})).dtype(), float16);
  const Layer norm = layers::BatchNormalization({.dtype = "mixed_bfloat16"});
  EXPECT_EQ(norm(ones({2, 4}), true).dtype(), bfloat16);
  for (const Variable& variable : norm.variables()) EXPECT_EQ(variable.dtype(), float32);
}

TEST(DTypePolicy, IsOfTheProcessUnlessALayerHasItsOwn) {
  mixed_precision::set_global_policy("mixed_bfloat16");
  const Layer mixed = layers::Dense(3), plain = layers::Dense(3, {.dtype = "float32"});
  mixed_precision::set_global_policy("float32");
  EXPECT_EQ(mixed(ones({2, 4})).dtype(), bfloat16);
  EXPECT_EQ(plain(ones({2, 4})).dtype(), float32);
}

// A level would have no effect on a module.
TEST(Initialize, RefusesModules) {
  const nn::Linear module(4, 3);
  const auto initialize_at = [&](const char* level) {
    amp::initialize({module}, {optimizers::SGD(0.1, module->parameters())}, {.opt_level = level});
  };
  for (const char* level : {"O1", "O2", "O3"})
    testing::expect_parts(
        error_of<InvalidArgumentError>([&] { initialize_at(level); }),
        {"[initialize] expected models and layers, got the td::nn module '", "td::amp::autocast"});
  initialize_at("O0");
}

TEST(DTypePolicy, RefusesUnknownNames) {
  EXPECT_EQ(
      error_of<InvalidArgumentError>([] { DTypePolicy("mixed_int8"); }),
      "[DTypePolicy] expected 'float32', 'float64', 'bfloat16', 'float16', 'mixed_bfloat16' or "
      "'mixed_float16', got 'mixed_int8'");
}

TEST(DTypePolicy, FitTrainsUnderItEagerlyAndTraced) {
  random::set_seed(5);
  const Tensor x = random::normal({64, 4});
  const Tensor y = cast(greater(reduce_sum(x, {.axis = Dims{1}}), 0.0), int32);
  const auto loss_after = [&](const char* policy, bool eagerly) {
    random::set_seed(6);
    Sequential net = make_net();
    net.compile({.optimizer = optimizers::Adam(0.01),
                 .loss = losses::SparseCategoricalCrossentropy({.from_logits = true}),
                 .run_eagerly = eagerly,
                 .dtype = policy});
    const History history = net.fit(x, y, {.epochs = 5, .verbose = 0});
    return history.at("loss").back();
  };
  const double expected = loss_after("float32", false);
  for (const char* policy : {"mixed_bfloat16", "mixed_float16"})
    for (bool eagerly : {false, true})
      EXPECT_NEAR(loss_after(policy, eagerly), expected, 0.02) << policy << eagerly;
}

}  // namespace
}  // namespace tandem::initialize_test
