// Traced functions whose inputs and results have new addresses in every call still launch
// recordings.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "cuda/fake_cuda.h"
#include "tandem/tandem.h"

namespace tandem {
namespace {

constexpr int kRows = 32, kWarmUp = 12;

// Row i is i, i + 1, i + 2, i + 3.
Tensor make_rows() {
  std::vector<Tensor> rows;
  for (int i = 0; i < kRows; ++i) rows.push_back(cast(range(i, i + 4), float32));
  return stack(rows);
}

using Call = std::function<Tensor(const Tensor&)>;

Tensor weigh(const Tensor& x) { return reduce_sum(x * x) * reduce_max(x); }

// The results of `call` for each row, all kept until the end, and the number of recordings that the
// calls after the first few launched.
struct Results {
  std::vector<float> values;
  int launched = 0;

  explicit Results(const Call& call) {
    const Tensor rows = make_rows();
    std::vector<Tensor> results;
    for (int i = 0; i < kRows; ++i) {
      if (i == kWarmUp) launched = -fake_cuda::graph_counts().launched;
      results.push_back(call(rows[i]));
    }
    launched += fake_cuda::graph_counts().launched;
    for (const Tensor& result : results) values.push_back(result.item<float>());
  }
};

TEST(MovingMemory, OfInputsAndResultsKeepsRecordings) {
  const Results eager(weigh), traced(function(weigh));
  EXPECT_EQ(traced.values, eager.values);
  EXPECT_EQ(eager.launched, 0);
  EXPECT_EQ(traced.launched, kRows - kWarmUp);
}

// A slice with another begin needs another cuDNN plan, which is not part of a recording.
TEST(MovingMemory, OfConvolutionsThatAreLessAligned) {
  const Tensor kernel = reshape(cast(range(0, 18), float32), {3, 3, 1, 2});
  const Tensor images = reshape(cast(range(0, 5 * 25), float32), {5, 5, 5, 1});
  const auto weighed = [](const Tensor& x, const Tensor& by) {
    const Tensor y = nn::conv2d(x, by);
    return y * reduce_max(y);
  };
  const auto traced = function(weighed);
  const auto expect_right = [&](std::int64_t begin) {
    const Tensor x = slice(images, {begin, 0, 0, 0}, {1, 5, 5, 1});
    EXPECT_EQ(traced(x, kernel).to_vector<float>(),
              weighed(x.cpu(), kernel.cpu()).to_vector<float>());
  };
  const int before = fake_cuda::graph_counts().launched;
  for (const std::int64_t begin : {0, 0, 1, 1, 1, 2, 2}) expect_right(begin);
  // The first call with each plan is launched kernel by kernel.
  EXPECT_EQ(fake_cuda::graph_counts().launched - before, 5);
}

TEST(MovingMemory, OfABranchKeepsRecordings) {
  const Tensor yes = [] {
    const DeviceScope host("/cpu:0");
    return constant(true);
  }();
  const auto branch = function([](const Tensor& which, const Tensor& x) {
    return cond(
        which, [&] { return weigh(x); }, [&] { return -x[0]; });
  });
  const Call call = [&](const Tensor& x) { return branch(yes, x); };
  const Results eager(weigh), traced(call);
  EXPECT_EQ(traced.values, eager.values);
  EXPECT_EQ(traced.launched, kRows - kWarmUp);
}

// An input may also be returned, and the results of one call may be the inputs of the next.
TEST(MovingMemory, ResultsAreTheNextInputs) {
  const auto step = function([](const Tensor& x) {
    return std::vector<Tensor>{x * 0.5 + reduce_max(x), x};
  });
  Tensor x = make_rows()[1];
  std::vector<Tensor> all;
  std::vector<float> expected = x.to_vector<float>();
  for (int i = 0; i < kRows; ++i) {
    const std::vector<Tensor> results = step(x);
    EXPECT_EQ(results[1].to_vector<float>(), expected) << i;
    const float most = *std::max_element(expected.begin(), expected.end());
    for (float& value : expected) value = value * 0.5f + most;
    x = results[0];
    all.push_back(x);
  }
  EXPECT_EQ(x.to_vector<float>(), expected);
}

// If there is no memory for a staging copy, moving inputs are read in place.
TEST(MovingMemory, OnAFullGpuResultsAreRight) {
  constexpr std::int64_t kNumbers = 1 << 12;
  config::set_logical_device_configuration(config::list_physical_devices("GPU")[0],
                                           {{.memory_limit = 8}});
  const auto weighed = function([](const Tensor& x) { return weigh(x) + reduce_sum(x); });
  const Tensor rows =
      zeros({kRows, kNumbers}) + reshape(cast(range(kRows), float32) + 1.0, {-1, 1});
  std::vector<Tensor> others;
  const auto left = [] { return config::get_memory_info("/gpu:0").largest_free_block; };
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < kRows; ++i) {
    if (i == 2)  // the second call has recorded
      while (left() >= kNumbers * 4) others.push_back(zeros({kNumbers}));
    const double value = i + 1;
    EXPECT_FLOAT_EQ(weighed(rows[i]).item<float>(),
                    static_cast<float>(kNumbers * (value * value * value + value)));
  }
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("indicates that this is not a failure"),
            std::string::npos);
}

}  // namespace
}  // namespace tandem
