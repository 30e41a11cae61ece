// Connectionist temporal classification, against sums over all paths.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "support/gradient_check.h"
#include "support/tensors.h"
#include "support/thread_counts.h"
#include "tandem/tandem.h"

namespace tandem::ctc_test {
namespace {

using namespace testing;
namespace F = nn::functional;
using Labels = std::vector<std::int64_t>;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Minus the logarithm of the sum of the probabilities of all paths that collapse to the labels.
double loss_of(const std::vector<double>& log_probs, std::int64_t steps, std::int64_t examples,
               std::int64_t classes, std::int64_t example, const Labels& labels,
               std::int64_t blank) {
  std::vector<std::int64_t> path(static_cast<std::size_t>(steps), 0);
  double sum = 0;
  for (bool more = true; more;) {
    Labels collapsed;
    double logarithm = 0;
    for (std::int64_t t = 0; t < steps; ++t) {
      const std::int64_t here = path[static_cast<std::size_t>(t)];
      if (here != blank && (t == 0 || path[static_cast<std::size_t>(t - 1)] != here))
        collapsed.push_back(here);
      logarithm += log_probs[static_cast<std::size_t>((t * examples + example) * classes + here)];
    }
    if (collapsed == labels) sum += std::exp(logarithm);
    more = false;
    for (std::int64_t& at : path) {
      if (++at < classes) {
        more = true;
        break;
      }
      at = 0;
    }
  }
  return -std::log(sum);
}

// Unequal lengths, repeated labels, none, and in the last example labels that do not fit.
constexpr std::int64_t kSteps = 6, kExamples = 5, kClasses = 4;
const std::vector<std::int64_t> kInputLengths = {6, 5, 4, 0, 3};
const std::vector<Labels> kLabels = {{1, 2, 2}, {3}, {}, {}, {1, 1, 1}};

struct Batch {
  Tensor logits, padded, all, input_lengths, target_lengths;
};
// Labels count from blank + 1, around the classes.
Batch batch_of(std::int64_t blank, std::int64_t examples = kExamples) {
  Labels padded, all, inputs, targets;
  for (std::int64_t i = 0; i < examples; ++i) {
    const Labels& labels = kLabels[static_cast<std::size_t>(i)];
    for (std::size_t j = 0; j < 4; ++j) {
      const std::int64_t label = j < labels.size() ? (labels[j] + blank) % kClasses : -7;
      padded.push_back(label);
      if (j < labels.size()) all.push_back(label);
    }
    inputs.push_back(kInputLengths[static_cast<std::size_t>(i)]);
    targets.push_back(static_cast<std::int64_t>(labels.size()));
  }
  return {.logits = random_tensor({kSteps, examples, kClasses}, 3),
          .padded = constant(padded, {.shape = {examples, 4}}),
          .all = constant(all),
          .input_lengths = constant(inputs, {.dtype = int32}),
          .target_lengths = constant(targets)};
}

std::vector<double> expected_losses(const Batch& batch, std::int64_t blank) {
  const std::vector<double> log_probs = values_of(nn::log_softmax(batch.logits));
  std::vector<double> losses;
  for (std::int64_t i = 0; i < batch.logits.dim(1); ++i) {
    Labels labels = kLabels[static_cast<std::size_t>(i)];
    for (std::int64_t& label : labels) label = (label + blank) % kClasses;
    losses.push_back(loss_of(log_probs, kInputLengths[static_cast<std::size_t>(i)],
                             batch.logits.dim(1), kClasses, i, labels, blank));
  }
  return losses;
}

TEST(CtcLoss, IsMinusTheLogarithmOfTheSumOverAllPaths) {
  for (const std::int64_t blank : {0, 2, 3}) {
    const Batch batch = batch_of(blank);
    const std::vector<double> expected = expected_losses(batch, blank);
    EXPECT_EQ(expected[3], 0.0);
    EXPECT_EQ(expected[4], kInfinity);
    for (const Tensor& targets : {batch.padded, batch.all, cast(batch.padded, int32)})
      for (const DType dtype : {float32, float64}) {
        const Tensor log_probs = nn::log_softmax(cast(batch.logits, dtype));
        const Tensor losses =
            F::ctc_loss(log_probs, targets, batch.input_lengths, batch.target_lengths,
                        {.blank = blank, .reduction = "none"});
        const std::vector<double> got = values_of(losses);
        ASSERT_EQ(losses.dtype(), dtype);
        EXPECT_EQ(got[4], kInfinity);
        for (std::size_t i = 0; i < 4; ++i)
          EXPECT_NEAR(got[i], expected[i], dtype == float64 ? 1e-12 : 2e-6) << i;
      }
  }
}

TEST(CtcLoss, DividesByTheLabelsOfEachExampleInTheMean) {
  const Batch batch = batch_of(0);
  std::vector<double> losses = expected_losses(batch, 0);
  losses[4] = 0;
  const Tensor log_probs = nn::log_softmax(batch.logits);
  const auto loss = [&](const nn::LossReduction& reduction) {
    return nn::CTCLoss({.reduction = reduction, .zero_infinity = true})(
        log_probs, batch.padded, batch.input_lengths, batch.target_lengths);
  };
  expect_tensor(loss("none"), float64, {kExamples}, losses, 1e-12);
  expect_tensor(loss("sum"), float64, Shape::scalar(), {losses[0] + losses[1] + losses[2]}, 1e-12);
  expect_tensor(loss("mean"), float64, Shape::scalar(),
                {(losses[0] / 3.0 + losses[1] + losses[2]) / 5.0}, 1e-12);
  EXPECT_EQ(F::ctc_loss(log_probs, batch.padded, batch.input_lengths, batch.target_lengths)
                .item<double>(),
            kInfinity);
  // One example without a batch.
  const Tensor one = log_probs(Slice{}, 0);
  expect_tensor(F::ctc_loss(one, constant(Labels{1, 2, 2}), constant(6), constant(3)), float64,
                Shape::scalar(), {losses[0] / 3.0}, 1e-12);
  expect_tensor(F::ctc_loss(one, constant(Labels{1, 2, 2, 9}), constant(6), constant(3),
                            {.reduction = "none"}),
                float64, Shape::scalar(), {losses[0]}, 1e-12);
  EXPECT_EQ(
      F::ctc_loss(cast(log_probs, float16), batch.padded, batch.input_lengths, batch.target_lengths)
          .dtype(),
      float32);
}

TEST(CtcLoss, HasRightGradients) {
  for (const std::int64_t blank : {0, 3}) {
    const Batch batch = batch_of(blank, 4);
    const auto loss = [&](const std::vector<Tensor>& in) {
      return F::ctc_loss(in[0], batch.padded, batch.input_lengths, batch.target_lengths,
                         {.blank = blank, .reduction = "none"});
    };
    // Also where numbers are no probabilities.
    expect_gradients(loss, {batch.logits});
    expect_gradients([&](const std::vector<Tensor>& in) { return loss({nn::log_softmax(in[0])}); },
                     {batch.logits});
  }
}

TEST(CtcLoss, HasGradientsOfNanWithoutAPathUnlessTheLossDoesNotCount) {
  const Batch batch = batch_of(0);
  for (const bool zero : {false, true}) {
    GradientTape tape;
    tape.watch(batch.logits);
    const Tensor loss =
        F::ctc_loss(nn::log_softmax(batch.logits), batch.all, batch.input_lengths,
                    batch.target_lengths, {.reduction = "sum", .zero_infinity = zero});
    const std::vector<double> gradient = values_of(tape.gradient(loss, batch.logits)(Slice{}, -1));
    for (std::size_t i = 0; i < gradient.size(); ++i)
      if (zero)
        EXPECT_EQ(gradient[i], 0.0);
      else
        EXPECT_EQ(std::isnan(gradient[i]), i < 3 * kClasses) << i;  // three steps
  }
}

TEST(CtcLoss, IsPreciseForLongInputs) {
  const std::int64_t steps = 3000;
  const Tensor logits = random_tensor({steps, 1, 5}, 8);
  Labels labels;
  for (int i = 0; i < 400; ++i) labels.push_back(1 + i * i % 4);
  const auto results = [&](DType dtype) {
    const Tensor x = cast(logits, dtype);
    GradientTape tape;
    tape.watch(x);
    const Tensor loss = F::ctc_loss(nn::log_softmax(x), constant(labels, {.shape = {1, 400}}),
                                    constant(Labels{steps}), constant(Labels{400}));
    return std::pair(values_of(loss)[0], values_of(tape.gradient(loss, x)));
  };
  const auto [loss, gradient] = results(float64);
  const auto [narrow, narrow_gradient] = results(float32);
  EXPECT_NEAR(narrow / loss, 1.0, 1e-6);
  for (std::size_t i = 0; i < gradient.size(); ++i)
    ASSERT_NEAR(narrow_gradient[i] * 400, gradient[i] * 400, 2e-4);
}

TEST(CtcLoss, WorksForUnknownSizesAndEmptyBatches) {
  const Batch batch = batch_of(0);
  const auto step = [](const std::vector<Tensor>& in) {
    GradientTape tape;
    tape.watch(in[0]);
    const Tensor loss =
        F::ctc_loss(nn::log_softmax(in[0]), in[1], in[2], in[3], {.zero_infinity = true});
    return std::vector<Tensor>{loss, tape.gradient(loss, in[0])};
  };
  const auto traced = function(step, {.input_signature = {{Shape{-1, -1, -1}, float64},
                                                          {Shape{-1, -1}, int64},
                                                          {Shape{-1}, int32},
                                                          {Shape{-1}, int64}}});
  for (const std::int64_t examples : {kExamples, std::int64_t{2}}) {
    const Batch some = batch_of(0, examples);
    const std::vector<Tensor> in = {some.logits, some.padded, some.input_lengths,
                                    some.target_lengths};
    const std::vector<Tensor> expected = step(in), got = traced(in);
    for (std::size_t i = 0; i < 2; ++i)
      expect_tensor(got[i], float64, expected[i].shape(), values_of(expected[i]), 0.0);
  }
  const Tensor none = zeros({0}, {.dtype = int64});
  expect_tensor(F::ctc_loss(zeros({3, 0, 2}), zeros({0, 1}, {.dtype = int64}), none, none,
                            {.reduction = "sum"}),
                float32, Shape::scalar(), {0.0});
}

TEST(CtcLoss, IsTheSameWithAnyNumberOfThreads) {
  expect_same_bits_with_any_team([] {
    const Tensor x = nn::log_softmax(random_tensor({30, 7, 6}, 1, -2, 2, float32));
    Labels labels, steps, counts;
    for (int i = 0; i < 7; ++i) {
      for (int j = 0; j < 9; ++j) labels.push_back(1 + (i * j) % 5);
      steps.push_back(30 - i);
      counts.push_back(9 - i);
    }
    GradientTape tape;
    tape.watch(x);
    const Tensor loss =
        F::ctc_loss(x, constant(labels, {.shape = {7, 9}}), constant(steps), constant(counts));
    return values_of(tape.gradient(loss, x));
  });
}

TEST(CtcLoss, RefusesArgumentsThatDoNotFit) {
  const Batch batch = batch_of(0);
  const Tensor x = nn::log_softmax(batch.logits);
  const auto loss = [&](const Tensor& log_probs, const Tensor& targets, const Tensor& inputs,
                        const Tensor& lengths, std::int64_t blank = 0) {
    static_cast<void>(
        F::ctc_loss(log_probs, targets, inputs, lengths, {.blank = blank}).item<double>());
  };
  const Tensor inputs = batch.input_lengths, lengths = batch.target_lengths;
  expect_error<ShapeError>([&] { loss(zeros({2}), batch.padded, inputs, lengths); },
                           "[CTCLoss] expected log-probabilities [time, batch, classes]");
  expect_error<ShapeError>(
      [&] {
        loss(x, zeros({4, 4}, {.dtype = int64}), inputs, lengths);
      },
      "[CTCLoss] expected targets [5, most labels] or all labels as a vector");
  expect_error<ShapeError>([&] { loss(x, batch.padded, constant(Labels{6}), lengths); },
                           "[CTCLoss] expected input_lengths of shape (5,), one per example");
  expect_error<DTypeError>([&] { loss(x, batch.padded, cast(inputs, float32), lengths); },
                           "[CTCLoss] expected targets and lengths of an integer dtype");
  expect_error<InvalidArgumentError>([&] { loss(x, batch.padded, inputs, lengths, 4); },
                                     "[CTCLoss] expected a blank in [0, 4), got 4");
  expect_error<InvalidArgumentError>([&] { loss(x, batch.padded, inputs + 1, lengths); },
                                     "expected input_lengths in [0, 6], got 7 for example 0");
  expect_error<InvalidArgumentError>([&] { loss(x, batch.padded, inputs, lengths * 2); },
                                     "expected target_lengths in [0, 4], got 6 for example 0");
  expect_error<InvalidArgumentError>(
      [&] { loss(x, batch.padded, inputs, lengths, 3); },
      "expected labels in [0, 4) other than the blank 3, got 3 as label 0 of example 1");
  expect_error<InvalidArgumentError>(
      [&] { loss(x, batch.all, inputs, maximum(lengths - 1, 0)); },
      "expected as many targets as the sum of target_lengths, 4, got 7");
}

TEST(CtcLoss, RefusesSecondDerivatives) {
  const Batch batch = batch_of(0, 2);
  const auto loss = [&](const std::vector<Tensor>& in) {
    return F::ctc_loss(in[0], batch.padded, batch.input_lengths, batch.target_lengths);
  };
  expect_error<UnimplementedError>([&] { expect_second_order(loss, {batch.logits}); },
                                   "the second derivative of ctc_loss() is not supported");
}

TEST(KerasCtc, CountsLabelsThatAreNotZeroAndAllSteps) {
  const Tensor logits = random_tensor({2, kSteps, kClasses}, 5);
  const Tensor y_true = constant({{1, 2, 2, 0}, {3, 0, 0, 0}});
  const std::vector<double> log_probs = values_of(nn::log_softmax(transpose(logits, {1, 0, 2})));
  const std::vector<double> expected = {loss_of(log_probs, kSteps, 2, kClasses, 0, {1, 2, 2}, 0),
                                        loss_of(log_probs, kSteps, 2, kClasses, 1, {3}, 0)};
  expect_tensor(losses::ctc(y_true, logits), float64, {2}, expected, 1e-12);
  expect_tensor(losses::CTC()(cast(y_true, float32), logits), float64, Shape::scalar(),
                {(expected[0] + expected[1]) / 2.0}, 1e-12);
  EXPECT_EQ(losses::from_name("ctc").name(), "ctc");
  expect_gradients([&](const std::vector<Tensor>& in) { return losses::ctc(y_true, in[0]); },
                   {logits});
  expect_error<ShapeError>(
      [&] {
        static_cast<void>(losses::ctc(y_true, ones({2, 3})));
      },
      "[ctc] expected y_true [batch, labels] and y_pred [batch, time, "
      "classes], got shapes (2, 4) and (2, 3)");
}

TEST(KerasCtc, TrainsAModel) {
  random::set_seed(1);
  Sequential model({layers::Dense(kClasses, {.input_shape = {kSteps, 3}})});
  model.compile({.optimizer = optimizers::Adam({.learning_rate = 0.1}), .loss = "ctc"});
  const Tensor x = random_tensor({8, kSteps, 3}, 2, -2, 2, float32);
  const Tensor y = tile(constant({{1, 2}, {3, 0}}), {4, 1});
  const auto history = model.fit(x, y, {.epochs = 30, .batch_size = 4, .verbose = 0});
  const auto& values = history["loss"];
  EXPECT_LT(values.back(), 0.5 * values.front());
}

}  // namespace
}  // namespace tandem::ctc_test
