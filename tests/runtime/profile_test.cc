// Profiles of operations, traced functions and devices.
#include <gtest/gtest.h>

#include "support/gpus.h"
#include "support/trace.h"
#include "tandem/tandem.h"

namespace tandem::profile_test {
namespace {

using testing::read_trace;
using testing::select;
using testing::TemporaryDirectory;

const std::string kCpu = "/job:localhost/replica:0/task:0/device:CPU:0";
const std::string kGpu = "/job:localhost/replica:0/task:0/device:GPU:0";

TEST(Profile, ShapesOfOperationsWithoutInputsBeginWithTheArrow) {
  testing::use_gpus(0);
  const TemporaryDirectory directory;
  profiler::start({.file = directory / "t"});
  random::normal({4, 2});
  profiler::stop();
  const auto normals = select(read_trace(directory / "t"), "RandomStandardNormal", kCpu, "stream");
  ASSERT_EQ(normals.size(), 1u);
  EXPECT_EQ(normals[0].args["shapes"], "-> (4, 2)");
}

TEST(Profile, ShowsOperationsOnTheCpuWithTheirShapes) {
  testing::use_gpus(0);
  const TemporaryDirectory directory;
  const Tensor a = ones({2, 3}), b = ones({3, 5});
  profiler::start({.file = directory / "t"});
  {
    const profiler::Scope scope("mine");
    matmul(a, b);
    matmul(a, b);
  }
  profiler::stop();
  const auto events = read_trace(directory / "t");
  const auto products = select(events, "MatMul", kCpu, "stream");
  ASSERT_EQ(products.size(), 2u);
  EXPECT_EQ(products[0].category, "kernel");
  EXPECT_EQ(products[0].args["shapes"], "(2, 3), (3, 5) -> (2, 5)");
  const auto scope = select(events, "mine", "host", "host");
  ASSERT_EQ(scope.size(), 1u);
  for (const auto& product : products) {
    EXPECT_GE(product.begin, scope[0].begin);
    EXPECT_LE(product.end, scope[0].end);
  }
}

TEST(Profile, ShowsStreamsOfGpusAndCopies) {
  testing::use_gpus(1, 64);
  const TemporaryDirectory directory;
  const Tensor on_cpu = [] {
    const DeviceScope cpu("/cpu:0");
    return ones({16, 4});
  }();
  profiler::start({.file = directory / "t"});
  const DeviceScope gpu("/gpu:0");
  const Tensor sum = add(on_cpu, on_cpu);
  EXPECT_EQ(sum.to_vector<float>()[0], 2.0f);
  profiler::stop();
  const auto events = read_trace(directory / "t");
  ASSERT_EQ(select(events, "AddV2", kGpu, "stream").size(), 1u);
  const auto uploads = select(events, "copy from the host", kGpu, "copies");
  ASSERT_GE(uploads.size(), 1u);
  EXPECT_EQ(uploads[0].args["bytes"], 16 * 4 * 4);
  EXPECT_EQ(uploads[0].category, "copy");
  // The event is in the row of the reading thread.
  const auto reads = select(events, "copy to the host", kGpu);
  ASSERT_EQ(reads.size(), 1u);
  EXPECT_EQ(reads[0].args["bytes"], 16 * 4 * 4);
  EXPECT_EQ(reads[0].category, "copy");
  EXPECT_LE(uploads[0].end, select(events, "AddV2", kGpu)[0].begin);
}

TEST(Profile, ShowsPrefetchCopiesInARowOfTheirOwn) {
  testing::use_gpus(1, 64);
  const TemporaryDirectory directory;
  const auto data = [] {
    const DeviceScope cpu("/cpu:0");
    return data::Dataset::from_tensor_slices({ones({12, 4})}).batch(6);
  }();
  profiler::start({.file = directory / "t"});
  for (const data::Example& batch : data.prefetch_to_device("/gpu:0"))
    EXPECT_EQ(reduce_sum(batch[0]).item<float>(), 24.0f);
  profiler::stop();
  const auto uploads =
      select(read_trace(directory / "t"), "copy from the host", kGpu, "copies ahead");
  ASSERT_EQ(uploads.size(), 2u);
  for (const auto& upload : uploads) {
    EXPECT_EQ(upload.args["bytes"], 6 * 4 * 4);
    EXPECT_EQ(upload.category, "copy");
  }
}

TEST(Profile, ShowsProgramsWithTheNamesOfNodes) {
  testing::use_gpus(1, 64);
  const TemporaryDirectory directory;
  const Variable weights(ones({4, 4}), {.name = "weights"});
  const auto step = function([&](const Tensor& x) {
    const Tensor hidden = [&] {
      const DeviceScope gpu("/gpu:0");
      return matmul(x, weights);
    }();
    const DeviceScope cpu("/cpu:0");
    return reduce_sum(hidden);
  });
  const Tensor x = ones({2, 4});
  step(x).item<float>();
  profiler::start({.file = directory / "t"});
  EXPECT_EQ(step(x).item<float>(), 32.0f);
  profiler::stop();
  const auto events = read_trace(directory / "t");
  const auto product = select(events, "MatMul", kGpu, "stream");
  ASSERT_EQ(product.size(), 1u);
  EXPECT_EQ(product[0].args["node"], "MatMul");
  EXPECT_EQ(product[0].args["shapes"], "(2, 4), (4, 4) -> (2, 4)");
  const auto sum = select(events, "Sum", kCpu);
  ASSERT_EQ(sum.size(), 1u);
  EXPECT_GE(sum[0].begin, product[0].end);
  EXPECT_EQ(select(events, "program", "host").size(), 2u);  // one lane per device
}

// A recorded call and its gradient are two programs.
TEST(Profile, ShowsTheBackwardPassOfAFunctionAsAProgram) {
  testing::use_gpus(0);
  const TemporaryDirectory directory;
  const Variable weights(ones({4, 4}));
  const auto forward = function([&](const Tensor& x) { return tanh(matmul(x, weights)); });
  Tensor x = ones({2, 4});
  x.set_requires_grad();
  for (int round = 0; round < 2; ++round) {
    if (round == 1) profiler::start({.file = directory / "t"});
    reduce_sum(forward(x)).backward();
  }
  profiler::stop();
  const auto events = read_trace(directory / "t");
  const auto programs = select(events, "program", "host");
  ASSERT_EQ(programs.size(), 2u);
  const auto products = select(events, "MatMul", kCpu, "stream");
  ASSERT_EQ(products.size(), 3u);
  const auto within = [](const auto& inner, const auto& outer) {
    return outer.begin <= inner.begin && inner.end <= outer.end;
  };
  EXPECT_TRUE(within(products[0], programs[0]));
  EXPECT_TRUE(within(products[1], programs[1]));
  EXPECT_TRUE(within(products[2], programs[1]));
}

TEST(Profile, IsValidIfStoppedDuringWork) {
  testing::use_gpus(1, 64);
  const TemporaryDirectory directory;
  const DeviceScope gpu("/gpu:0");
  Tensor x = ones({64, 64});
  for (int round = 0; round < 5; ++round) {
    profiler::start({.file = directory / "t"});
    for (int i = 0; i < 50; ++i) x = matmul(x, x) * 0.01;
    const profiler::Summary summary = profiler::stop();
    EXPECT_EQ(read_trace(directory / "t").size(), static_cast<std::size_t>(summary.events));
  }
  x.cpu();
}

}  // namespace
}  // namespace tandem::profile_test
