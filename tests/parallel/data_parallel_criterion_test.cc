// DataParallelCriterion: how losses of parts are combined; and what is gathered.
#include "parallel/data_parallel_models.h"
#include "support/tensors.h"

namespace tandem::data_parallel_criterion_test {
namespace {

using parallel::DataParallelCriterion;
using parallel::DataParallelModel;
using parallel::PerDevice;
using namespace testing;

class Criterion : public ::testing::Test {
 protected:
  losses::Loss loss(losses::Reduction reduction = losses::Reduction::kAuto) const {
    return losses::SparseCategoricalCrossentropy({.from_logits = true, .reduction = reduction});
  }
  // The loss on each device's part, on one device.
  std::vector<Tensor> of_parts(losses::Reduction reduction = losses::Reduction::kAuto) const {
    std::vector<Tensor> losses;
    std::int64_t begin = 0;
    for (const std::int64_t size : {3, 2, 2}) {
      const Examples part = batch_.rows(begin, begin + size);
      losses.push_back(loss(reduction)(part.y, net_(part.x)));
      begin += size;
    }
    return losses;
  }
  void expect_gradients_of(const Tensor& actual, const Tensor& expected) {
    expect_close(actual, expected);
    actual.backward();
    const testing::Weights gradients = gradients_of(net_.parameters());
    zero_gradients(net_.parameters());
    expected.backward();
    expect_near(gradients, gradients_of(net_.parameters()));
    zero_gradients(net_.parameters());
  }

  Devices devices_{"gpu", 3};
  Sequential net_ = perceptron(1);
  DataParallelModel model_{net_, {.device_ids = devices_.ids()}};
  Examples batch_ = examples(7);
};

TEST_F(Criterion, WeightsPartsByTheirExamples) {
  const auto parts = of_parts();
  const Tensor weighted = (parts[0] * 3.0 + parts[1] * 2.0 + parts[2] * 2.0) / 7.0;
  expect_close(weighted, loss()(batch_.y, net_(batch_.x)));
  expect_gradients_of(DataParallelCriterion(loss())(model_(batch_.x), batch_.y), weighted);
}

TEST_F(Criterion, TheMeanOfMeansIsAnOption) {
  const DataParallelCriterion criterion(loss(), {.average_by_examples = false});
  const auto parts = of_parts();
  expect_gradients_of(criterion(model_(batch_.x), batch_.y),
                      (parts[0] + parts[1] + parts[2]) / 3.0);
}

TEST_F(Criterion, AddsUpSums) {
  using losses::Reduction;
  expect_gradients_of(DataParallelCriterion(loss(Reduction::kSum))(model_(batch_.x), batch_.y),
                      loss(Reduction::kSum)(batch_.y, net_(batch_.x)));
  const auto parts = of_parts(Reduction::kSum);
  const DataParallelCriterion mean(loss(Reduction::kSum), {.average_by_examples = false});
  expect_gradients_of(mean(model_(batch_.x), batch_.y), (parts[0] + parts[1] + parts[2]) / 3.0);
}

TEST_F(Criterion, JoinsValuesOfExamplesOnTheOutputDevice) {
  const DataParallelCriterion criterion(loss(losses::Reduction::kNone), {.output_device = 2});
  const Tensor values = criterion(model_(batch_.x), batch_.y);
  EXPECT_EQ(values.device(), devices_.name(2));
  expect_close(values, loss().per_example(batch_.y, net_(batch_.x)));
}

TEST_F(Criterion, TakesSampleWeights) {
  const Tensor weights = constant({1.0, 0.0, 2.0, 0.5, 3.0, 1.0, 0.25});
  expect_gradients_of(DataParallelCriterion(loss())(model_(batch_.x), batch_.y, weights),
                      loss()(batch_.y, net_(batch_.x), weights));
}

TEST_F(Criterion, TakesNamesAndCallables) {
  const Tensor target = net_(batch_.x).detach() * 0.5;
  expect_gradients_of(DataParallelCriterion("mse")(model_(batch_.x), target),
                      reduce_mean(square(net_(batch_.x) - target)));

  // Nested outputs and targets.
  const auto forward = [&](const Tensor& x) { return std::pair(net_(x), square(net_(x))); };
  const DataParallelCriterion both(
      [](const std::pair<Tensor, Tensor>& output, const std::tuple<Tensor, Tensor>& of) {
        return reduce_mean(square(output.first - std::get<0>(of))) +
               reduce_mean(abs(output.second - std::get<1>(of)));
      });
  const Tensor expected = reduce_mean(square(net_(batch_.x) - target)) +
                          reduce_mean(abs(square(net_(batch_.x)) - target));
  expect_gradients_of(both(model_.run(forward, batch_.x), std::tuple(target, target)), expected);
}

// nn::compute_average_loss() averages over the part there, as a mean does.
TEST_F(Criterion, AveragesOfALossAreThoseOfThePart) {
  const DataParallelCriterion criterion([](const Tensor& output, const Tensor& target) {
    return nn::compute_average_loss(nn::sparse_softmax_cross_entropy(target, output));
  });
  expect_gradients_of(criterion(model_(batch_.x), batch_.y), loss()(batch_.y, net_(batch_.x)));
}

TEST_F(Criterion, ScalarsAreGatheredAsAVector) {
  const parallel::DataParallel model(net_, {.device_ids = devices_.ids(), .output_device = 1});
  ::testing::internal::CaptureStderr();
  const auto mean = [&](const Tensor& x) { return reduce_mean(net_(x)); };
  const Tensor means = model.run(mean, batch_.x);
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_NE(log.find("Was asked to gather along dimension 0, but all input tensors were scalars; "
                     "will instead unsqueeze and return a vector."),
            std::string::npos)
      << log;
  EXPECT_EQ(means.device(), devices_.name(1));
  expect_close(means, stack({mean(slice_rows(batch_.x, 0, 3)), mean(slice_rows(batch_.x, 3, 5)),
                             mean(slice_rows(batch_.x, 5, 7))}));
  EXPECT_EQ(model.run(mean, slice_rows(batch_.x, 0, 1)).shape(), Shape({1}));
}

TEST_F(Criterion, ChecksItsTargets) {
  const DataParallelCriterion criterion(loss(losses::Reduction::kAuto));
  testing::expect_error<InvalidArgumentError>(
      [&] { criterion(model_(batch_.x), slice_rows(batch_.y, 0, 6)); },
      "expected 7 examples along axis 0, as the outputs have, got shape (6,)");
  testing::expect_error<InvalidArgumentError>(
      [&] { criterion(PerDevice<Tensor>(), batch_.y); },
      "expected the outputs of a DataParallelModel, got none");
}

}  // namespace
}  // namespace tandem::data_parallel_criterion_test
