// GradScaler, LossScaleOptimizer and scale_loss: constants, skipped steps, errors.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/errors.h"
#include "support/strategies.h"
#include "support/tensors.h"
#include "tandem/tandem.h"

namespace tandem::loss_scale_test {
namespace {

using testing::cpus;
using testing::error_of;
using testing::values_of;

constexpr double kInf = std::numeric_limits<double>::infinity();

// y = x * w, whose gradient is x.
struct Line {
  Variable weight{ones({2})};
  optimizers::Optimizer optimizer = optimizers::SGD(0.5, {weight});
  Tensor loss(double x) const { return reduce_sum(weight.value() * x); }
  Tensor step(amp::GradScaler& scaler, const Tensor& x) {
    optimizer.zero_grad();
    const Tensor loss = reduce_sum(weight.value() * x);
    scaler.scale(loss).backward();
    scaler.step(optimizer);
    scaler.update();
    return loss;
  }
};

TEST(GradScaler, HasTheConstantsOfTorch) {
  const amp::GradScaler scaler;
  EXPECT_EQ(scaler.get_scale(), 65536.0);
  EXPECT_EQ(scaler.get_growth_factor(), 2.0);
  EXPECT_EQ(scaler.get_backoff_factor(), 0.5);
  EXPECT_EQ(scaler.get_growth_interval(), 2000);
}

// Steps with gradients 1, inf and 2, eager or traced.
void train_with_overflow(bool traced) {
  SCOPED_TRACE(traced);
  Line line;
  amp::GradScaler scaler({.init_scale = 8.0, .growth_interval = 2});
  const auto step = [&](const Tensor& x) { return line.step(scaler, x); };
  const auto replayed = function(step);
  const auto run = [&](double x) {
    const Tensor input = full({2}, x);
    static_cast<void>(traced ? replayed(input) : step(input));
  };
  run(1.0);
  EXPECT_EQ(values_of(line.weight), std::vector<double>({0.5, 0.5}));
  run(kInf);
  EXPECT_EQ(values_of(line.weight), std::vector<double>({0.5, 0.5}));
  EXPECT_EQ(scaler.get_scale(), 4.0);
  EXPECT_EQ(line.optimizer.iterations(), 1);
  run(1.0);
  EXPECT_EQ(scaler.get_scale(), 4.0);
  run(2.0);
  EXPECT_EQ(scaler.get_scale(), 8.0);
  EXPECT_EQ(values_of(line.weight), std::vector<double>({-1.0, -1.0}));
}

TEST(GradScaler, SkipsStepsThatOverflowAndGrowsAfterGoodOnes) { train_with_overflow(false); }
TEST(GradScaler, DoesTheSameInTracedFunctions) { train_with_overflow(true); }

TEST(GradScaler, UnscaledGradientsMayBeClippedBeforeTheStep) {
  Line line;
  amp::GradScaler scaler;
  scaler.scale(line.loss(4.0)).backward();
  scaler.unscale_(line.optimizer);
  EXPECT_EQ(values_of(line.weight.grad()), std::vector<double>({4.0, 4.0}));
  line.weight.set_grad(clip_by_value(line.weight.grad(), -1.0, 1.0));
  scaler.step(line.optimizer);
  scaler.update();
  EXPECT_EQ(values_of(line.weight), std::vector<double>({0.5, 0.5}));
}

TEST(GradScaler, AnOverflowBeforeClippingSkipsTheStep) {
  Line line;
  amp::GradScaler scaler;
  scaler.scale(line.loss(kInf)).backward();
  scaler.unscale_(line.optimizer);
  line.weight.set_grad(clip_by_value(line.weight.grad(), -1.0, 1.0));
  scaler.step(line.optimizer);
  scaler.update();
  EXPECT_EQ(values_of(line.weight), std::vector<double>({1.0, 1.0}));
  EXPECT_EQ(scaler.get_scale(), 32768.0);
}

TEST(GradScaler, OneSkippedOptimizerOfTwoReducesTheScale) {
  Line good, bad;
  amp::GradScaler scaler;
  scaler.scale(good.loss(1.0)).backward();
  scaler.scale(bad.loss(kInf)).backward();
  scaler.step(good.optimizer);
  scaler.step(bad.optimizer);
  scaler.update();
  EXPECT_EQ(values_of(good.weight), std::vector<double>({0.5, 0.5}));
  EXPECT_EQ(values_of(bad.weight), std::vector<double>({1.0, 1.0}));
  EXPECT_EQ(scaler.get_scale(), 32768.0);
}

TEST(GradScaler, RefusesCallsInTheWrongOrder) {
  Line line;
  amp::GradScaler scaler;
  EXPECT_EQ(error_of<FailedPreconditionError>([&] { scaler.update(); }),
            "[GradScaler] No inf checks were recorded prior to update.");
  EXPECT_EQ(error_of<FailedPreconditionError>([&] { scaler.step(line.optimizer); }),
            "[GradScaler] No inf checks were recorded for this optimizer.");
  scaler.scale(line.loss(1.0)).backward();
  scaler.unscale_(line.optimizer);
  EXPECT_EQ(error_of<FailedPreconditionError>([&] { scaler.unscale_(line.optimizer); }),
            "[GradScaler] unscale_() has already been called on this optimizer since the last "
            "update().");
  scaler.step(line.optimizer);
  EXPECT_EQ(error_of<FailedPreconditionError>([&] { scaler.step(line.optimizer); }),
            "[GradScaler] step() has already been called since the last update().");
  EXPECT_EQ(error_of<FailedPreconditionError>([&] { scaler.unscale_(line.optimizer); }),
            "[GradScaler] unscale_() is being called after step().");
}

TEST(GradScaler, RefusesFloat16Gradients) {
  const Variable weight(ones({2}, {.dtype = float16}));
  auto optimizer = optimizers::SGD(0.5, {weight});
  amp::GradScaler scaler;
  reduce_sum(weight.value()).backward();
  EXPECT_EQ(error_of<InvalidArgumentError>([&] { scaler.unscale_(optimizer); }),
            "[GradScaler] Attempting to unscale FP16 gradients.");
  EXPECT_EQ(error_of<InvalidArgumentError>([&] { scaler.step(optimizer); }),
            "[GradScaler] Attempting to unscale FP16 gradients.");
}

TEST(GradScaler, ABadScaleOrStateChangesNothing) {
  amp::GradScaler scaler({.init_scale = 4.0});
  const auto state = scaler.state_dict();
  for (const double scale : {-1.0, 0.0, kInf, std::nan("")})
    EXPECT_THROW(scaler.update(scale), InvalidArgumentError) << scale;
  auto incomplete = state, negative = state;
  incomplete["growth_factor"] = 8.0;
  incomplete.erase("_growth_tracker");
  negative["scale"] = -2.0;
  EXPECT_THROW(scaler.load_state_dict(incomplete), InvalidArgumentError);
  EXPECT_THROW(scaler.load_state_dict(negative), InvalidArgumentError);
  EXPECT_EQ(scaler.state_dict(), state);
}

TEST(GradScaler, FactorsOfATraceCannotChange) {
  Line line;
  amp::GradScaler scaler({.init_scale = 4.0});
  const auto step = function([&](const Tensor& x) { return line.step(scaler, x); });
  auto state = scaler.state_dict();
  state["growth_factor"] = 10.0;
  scaler.load_state_dict(state);
  step(ones({2}));
  state["growth_factor"] = 20.0;
  EXPECT_NE(error_of<FailedPreconditionError>([&] {
              scaler.load_state_dict(state);
            }).find("are constants of functions that were traced"),
            std::string::npos);
}

TEST(GradScaler, TheCallsOfAnIterationBelongIntoOneFunction) {
  Line line;
  amp::GradScaler scaler({.init_scale = 4.0});
  const auto error = [&](const auto& call) {
    return error_of<FailedPreconditionError>(call).find("belong into one function") !=
           std::string::npos;
  };
  function([&] {
    scaler.scale(line.loss(1.0)).backward();
    scaler.step(line.optimizer);
  })();
  EXPECT_TRUE(error([&] { scaler.update(); }));
  function([&] {
    scaler.scale(line.loss(1.0)).backward();
    scaler.unscale_(line.optimizer);
  })();
  EXPECT_TRUE(error([&] { scaler.step(line.optimizer); }));
}

// torch users switch growth off by 1 << 40.
TEST(GradScaler, AnIntervalMayBeLargerThanInt32) {
  Line line;
  amp::GradScaler scaler({.init_scale = 4.0, .growth_interval = std::int64_t{1} << 40});
  scaler.scale(line.loss(1.0)).backward();
  scaler.step(line.optimizer);
  scaler.update();
  EXPECT_EQ(scaler.get_scale(), 4.0);
}

TEST(GradScaler, AScaleNeverBecomesZero) {
  Line line;
  amp::GradScaler scaler;
  const auto step = [&](double x) {
    line.optimizer.zero_grad();
    scaler.scale(line.loss(x)).backward();
    scaler.step(line.optimizer);
    scaler.update();
  };
  for (int i = 0; i < 200; ++i) step(kInf);
  EXPECT_GT(scaler.get_scale(), 0.0);
  step(1.0);
  for (const double weight : values_of(line.weight)) EXPECT_TRUE(std::isfinite(weight));
}

TEST(GradScaler, ItsStateIsRestored) {
  Line line;
  amp::GradScaler scaler({.init_scale = 4.0}), other;
  scaler.scale(line.loss(1.0)).backward();
  scaler.step(line.optimizer);
  scaler.update();
  other.load_state_dict(scaler.state_dict());
  EXPECT_EQ(other.state_dict(), scaler.state_dict());
  EXPECT_EQ(other.state_dict().at("_growth_tracker"), 1.0);
  EXPECT_EQ(error_of<InvalidArgumentError>([&] { other.load_state_dict({}); }),
            "[GradScaler] The source state dict is empty, possibly because it was saved from a "
            "disabled instance of GradScaler.");
}

TEST(GradScaler, ANewScaleIsSetInEveryRunOfATrace) {
  Line line;
  amp::GradScaler scaler({.init_scale = 8.0, .growth_interval = 100});
  const auto step = function([&](const Tensor& x) {
    line.optimizer.zero_grad();
    const Tensor loss = reduce_sum(line.weight.value() * x);
    scaler.scale(loss).backward();
    scaler.step(line.optimizer);
    scaler.update(128.0);
    return loss;
  });
  for (int i = 0; i < 3; ++i) {
    step(ones({2}));
    EXPECT_EQ(scaler.get_scale(), 128.0);
    scaler.load_state_dict({{"scale", 512.0},
                            {"growth_factor", 2.0},
                            {"backoff_factor", 0.5},
                            {"growth_interval", 100.0},
                            {"_growth_tracker", 7.0}});
  }
  step(ones({2}));
  EXPECT_EQ(scaler.state_dict().at("_growth_tracker"), 7.0) << "as torch.amp's";
}

// Each replica sets the scale of its own steps, while others still use theirs.
TEST(GradScaler, ANewScaleInReplicasIsTheReplicasOwn) {
  const distribute::MirroredStrategy strategy = cpus(4);
  const auto scope = strategy.scope();
  const Variable weight(ones({2}));
  optimizers::Optimizer optimizer = optimizers::SGD(0.5, {weight});
  amp::GradScaler scaler({.init_scale = 8.0});
  for (int i = 0; i < 200; ++i)
    strategy.run([&] {
      optimizer.zero_grad();
      scaler.scale(reduce_sum(weight.value()) * 0.25).backward();
      scaler.step(optimizer);
      scaler.update(i % 2 == 0 ? 1024.0 : 2.0);
    });
  const auto copies = strategy.run([&] { return weight.value(); });
  for (std::size_t replica = 0; replica < 4; ++replica)
    EXPECT_EQ(values_of(copies[replica]), std::vector<double>({-99, -99}));
}

TEST(GradScaler, DisabledPassesEverythingThrough) {
  Line line;
  amp::GradScaler scaler({.enabled = false});
  scaler.scale(line.loss(1.0)).backward();
  scaler.step(line.optimizer);
  scaler.update();
  EXPECT_EQ(values_of(line.weight), std::vector<double>({0.5, 0.5}));
  EXPECT_EQ(scaler.get_scale(), 1.0);
  EXPECT_TRUE(scaler.state_dict().empty());
}

TEST(LossScaleOptimizer, MinimizeScalesAndSkips) {
  for (bool traced : {false, true}) {
    SCOPED_TRACE(traced);
    Line line;
    auto optimizer = optimizers::LossScaleOptimizer(line.optimizer, {.initial_scale = 1024.0});
    const auto step = [&](const Tensor& x) {
      const Tensor loss = reduce_sum(line.weight.value() * x);
      optimizer.minimize(loss, {line.weight});
      return loss;
    };
    const auto replayed = function(step);
    for (double x : {1.0, kInf, 1.0})
      static_cast<void>(traced ? replayed(full({2}, x)) : step(full({2}, x)));
    EXPECT_EQ(values_of(line.weight), std::vector<double>({0.0, 0.0}));
    EXPECT_EQ(optimizer.loss_scale(), 512.0);
    EXPECT_EQ(optimizer.iterations(), 2);
  }
}

TEST(LossScaleOptimizer, OneReplicaWithAnInfSkipsTheStepOnAll) {
  const distribute::MirroredStrategy strategy = cpus(4);
  const auto scope = strategy.scope();
  const Variable weight(ones({2}));
  auto optimizer = optimizers::LossScaleOptimizer(optimizers::SGD(0.5, {weight}));
  const auto step = [&](int at) {
    strategy.run([&] {
      const int me = distribute::replica_id_in_sync_group();
      const Tensor x = full({2}, me == at ? kInf : 1.0);
      optimizer.minimize(reduce_sum(weight.value() * x) * 0.25, {weight});
    });
  };
  step(2);
  EXPECT_EQ(values_of(weight), std::vector<double>({1.0, 1.0}));
  EXPECT_EQ(optimizer.loss_scale(), 32768.0);
  step(-1);
  EXPECT_EQ(values_of(weight), std::vector<double>({0.5, 0.5}));
}

// State that is read, saved or restored before training is that of every replica.
TEST(LossScaleOptimizer, ItsStateMayBeUsedBeforeReplicasUseIt) {
  const distribute::MirroredStrategy strategy = cpus(4);
  const auto scope = strategy.scope();
  const Variable weight(ones({2}));
  auto optimizer = optimizers::LossScaleOptimizer(optimizers::SGD(0.5, {weight}));
  EXPECT_EQ(optimizer.loss_scale(), 65536.0);
  std::vector<Variable> state = optimizer.variables();
  ASSERT_EQ(state.size(), 2u);
  state[0].assign(full(Shape::scalar(), 8.0));
  for (const bool traced : {false, true}) {
    const auto step = [&](const Tensor& x) {
      optimizer.minimize(reduce_sum(weight.value() * x) * 0.25, {weight});
    };
    const auto replayed = function(step);
    for (const double x : {1.0, kInf})
      strategy.run([&] { traced ? replayed(full({2}, x)) : step(full({2}, x)); });
  }
  EXPECT_EQ(optimizer.loss_scale(), 2.0);
  EXPECT_EQ(values_of(state[0]), std::vector<double>{2.0});
  EXPECT_EQ(values_of(weight), std::vector<double>({0.0, 0.0}));
}

TEST(LossScaleOptimizer, IsCompiledInTheScopeOfAStrategy) {
  config::set_logical_cpus(2);
  for (const bool mirrored : {false, true}) {
    const distribute::Strategy strategy =
        mirrored
            ? distribute::Strategy(distribute::MirroredStrategy({.devices = {"/cpu:0", "/cpu:1"}}))
            : distribute::Strategy(
                  distribute::CentralStorageStrategy({.compute_devices = {"/cpu:0", "/cpu:1"}}));
    const auto scope = strategy.scope();
    Model model = Sequential({layers::Dense(1, {.use_bias = false, .input_shape = {2}})});
    auto optimizer = optimizers::LossScaleOptimizer(optimizers::Adam());
    EXPECT_EQ(optimizer.variables().size(), 2u);
    model.compile({.optimizer = optimizer, .loss = losses::MeanSquaredError()});
    const History history =
        model.fit(ones({8, 2}), ones({8, 1}), {.epochs = 2, .batch_size = 4, .verbose = 0});
    EXPECT_EQ(optimizer.iterations(), 4);
    EXPECT_LT(history.history.at("loss")[1], history.history.at("loss")[0]);
  }
}

TEST(LossScaleOptimizer, RefusesOptionsOutOfRange) {
  const auto error = [](const optimizers::LossScaleOptions& options) {
    return error_of<InvalidArgumentError>(
        [&] { optimizers::LossScaleOptimizer(optimizers::SGD(0.1), options); });
  };
  EXPECT_EQ(error({.growth_factor = 1.0}),
            "[LossScaleOptimizer] expected a growth_factor above 1, got 1");
  EXPECT_EQ(error({.backoff_factor = 1.0}),
            "[LossScaleOptimizer] expected a backoff_factor between 0 and 1, got 1");
}

}  // namespace
}  // namespace tandem::loss_scale_test
