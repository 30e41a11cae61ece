// The memory that programs of one function or session share.
#include <gtest/gtest.h>

#include <thread>

#include "support/errors.h"
#include "support/gpus.h"
#include "tandem/tandem.h"

namespace tandem::program_memory_test {
namespace {

using nn::softmax;
using testing::error_of;

constexpr const char* kGpu = "/gpu:0";

std::int64_t in_use() { return config::get_memory_info(kGpu).current; }

// The bytes in use after `run` beyond those before it.
template <class F>
std::int64_t added_by(const F& run) {
  const std::int64_t before = in_use();
  run();
  return in_use() - before;
}

Tensor rows(std::int64_t count) { return ones({count, 256}); }

// Several values of the size of the argument are live at once.
Tensor layers_of(const Tensor& x) {
  const Tensor a = softmax(x), b = softmax(a * 2.0);
  return reduce_sum(softmax(a + b) * a, {.axis = {1}});
}

TEST(ProgramMemory, AFunctionUsesTheMemoryOfItsLargestProgram) {
  testing::use_gpus(1, 128);
  const DeviceScope gpu(kGpu);
  const NoGradScope no_grad;
  const auto largest = function(layers_of), many = function(layers_of);
  const std::int64_t alone = added_by([&] { largest(rows(700)); });
  EXPECT_GT(alone, 700 * 256 * 4);
  const std::int64_t all = added_by([&] {
    for (int i = 1; i <= 70; ++i) many(rows(10 * i));
    for (int i = 70; i >= 1; i -= 3) many(rows(10 * i));
  });
  EXPECT_LE(all, alone + alone / 5);
}

TEST(ProgramMemory, SizesOfOneSignatureShareIt) {
  testing::use_gpus(1, 128);
  const DeviceScope gpu(kGpu);
  const NoGradScope no_grad;
  const FunctionOptions options{.input_signature = {{{-1, 256}}}};
  const auto largest = function(layers_of, options), many = function(layers_of, options);
  const std::int64_t alone = added_by([&] { largest(rows(700)); });
  const std::int64_t all = added_by([&] {
    for (int i = 1; i <= 70; ++i) many(rows(10 * i));
  });
  EXPECT_LE(all, alone + alone / 5);
  EXPECT_EQ(many.num_traces(), 1u);
}

// Memory that a run keeps for its gradient, and memory of the backward pass.
TEST(ProgramMemory, BackwardProgramsShareIt) {
  testing::use_gpus(1, 128);
  const DeviceScope gpu(kGpu);
  Variable scale(ones({256}));
  const auto forward = [&](const Tensor& x) { return layers_of(x * scale); };
  const auto step = [&](const auto& call, std::int64_t count) {
    GradientTape tape;
    const Tensor loss = reduce_sum(call(rows(count)));
    return tape.gradient(loss, scale).to_vector<float>();
  };
  const auto largest = function(forward), many = function(forward);
  const std::int64_t alone = added_by([&] { step(largest, 400); });
  const std::int64_t all = added_by([&] {
    for (int i = 1; i <= 20; ++i) EXPECT_EQ(step(many, 20 * i), step(forward, 20 * i)) << i;
  });
  EXPECT_LE(all, alone + alone / 5);
}

TEST(ProgramMemory, ASessionUsesTheMemoryOfItsLargestProgram) {
  testing::use_gpus(1, 128);
  Graph graph;
  Tensor x, y;
  {
    const GraphScope building(graph);
    const DeviceScope gpu(kGpu);
    x = placeholder(float32, {-1, 256}, "x");
    y = layers_of(x);
  }
  Session largest(graph), many(graph);
  const std::int64_t alone = added_by([&] { largest.run({{x, rows(600)}}, y); });
  const std::int64_t all = added_by([&] {
    for (int i = 1; i <= 200; ++i) many.run({{x, rows(3 * i)}}, y);
  });
  EXPECT_GT(alone, 600 * 256 * 4);
  EXPECT_LE(all, alone + alone / 5);
}

TEST(ProgramMemory, LoopsAndBranchesShareIt) {
  testing::use_gpus(1, 128);
  const DeviceScope gpu(kGpu);
  const NoGradScope no_grad;
  const auto body = [](const Tensor& x) {
    return while_loop([](const auto& v) { return less(v[0], 3.0); },
                      [](const auto& v) {
                        const Tensor y = cond(
                            greater(v[0], 1.0), [&] { return softmax(softmax(v[1]) * 2.0) + v[1]; },
                            [&] { return softmax(v[1]) * v[1]; });
                        return std::vector<Tensor>{v[0] + 1.0, y};
                      },
                      {zeros({}), x})[1];
  };
  const auto largest = function(body), many = function(body);
  const std::int64_t alone = added_by([&] { largest(rows(400)); });
  const std::int64_t all = added_by([&] {
    for (int i = 1; i <= 20; ++i)
      EXPECT_EQ(many(rows(20 * i)).to_vector<float>(), body(rows(20 * i)).to_vector<float>());
  });
  EXPECT_LE(all, alone + alone / 5);
}

// The 64 programs that were used last. An evicted trace gives the same results when traced again.
TEST(ProgramMemory, TheNumberOfProgramsIsBounded) {
  const NoGradScope no_grad;
  int traced = 0;
  const auto doubled = function([&](const Tensor& x) {
    ++traced;
    return std::pair(x * 2.0, x.dim(0));
  });
  const auto call = [&](std::int64_t size) {
    const auto [values, kept] = doubled(ones({size}));
    EXPECT_EQ(values.shape(), Shape({size}));
    EXPECT_EQ(kept, size);
  };
  for (std::int64_t size = 1; size <= 70; ++size) {
    call(size);
    call(1);  // stays in use
  }
  EXPECT_EQ(doubled.num_traces(), 64u);
  const int before = traced;
  call(1);
  call(70);
  EXPECT_EQ(traced, before);
  call(2);
  EXPECT_EQ(traced, before + 1);
  EXPECT_EQ(doubled.num_traces(), 64u);
}

TEST(ProgramMemory, AfterAFailureASmallerProgramFits) {
  testing::use_gpus(1, 24);
  const DeviceScope gpu(kGpu);
  const NoGradScope no_grad;
  const auto step = function(layers_of, {.name = "step"});
  step(rows(1000));
  const std::int64_t before = in_use();
  const std::string error = error_of<ResourceExhaustedError>([&] { step(rows(12000)); });
  EXPECT_NE(error.find("OOM when allocating the values of a run of 'step' with inputs of shapes "
                       "(12000, 256) (largest values: Softmax (12000, 256) float32 of 11.7 MiB, "),
            std::string::npos)
      << error;
  EXPECT_LE(in_use(), before);
  step(rows(2000));
  EXPECT_EQ(step(rows(1)).to_vector<float>(), layers_of(rows(1)).to_vector<float>());
}

TEST(ProgramMemory, TheMessageNamesUnknownSizes) {
  testing::use_gpus(1, 24);
  const DeviceScope gpu(kGpu);
  const NoGradScope no_grad;
  const auto step = function(
      [](const Tensor& x) {
        return softmax(layers_of(concat({x, x}, 0)));
      },
      {.name = "step", .input_signature = {{{-1, 256}, float32}}});
  const std::string error = error_of<ResourceExhaustedError>([&] { step(rows(6000)); });
  testing::expect_parts(error,
                        {"with inputs of shapes (axis 0 of 'args_0' = 6000, 256) (largest values: ",
                         "((2 * axis 0 of 'args_0') = 12000, 256) float32 of 11.7 MiB"});
}

TEST(ProgramMemory, IdleArenasMakeRoomForOthers) {
  testing::use_gpus(1, 24);
  const DeviceScope gpu(kGpu);
  const NoGradScope no_grad;
  const auto one = function(layers_of), other = function(layers_of);
  const Tensor x = rows(3000);
  for (int i = 0; i < 3; ++i) {
    one(x);
    other(x);
    EXPECT_EQ(zeros({18, 256, 1024}).shape()[0], 18);  // 18 MiB
  }
}

TEST(ProgramMemory, TrimmingFreesWhatIsIdle) {
  testing::use_gpus(1, 64);
  const DeviceScope gpu(kGpu);
  const NoGradScope no_grad;
  const auto step = function(layers_of);
  const Tensor x = rows(2000);
  const std::vector<float> expected = step(x).to_vector<float>();
  const std::int64_t held = in_use();
  config::trim_memory(kGpu);
  EXPECT_LE(in_use(), held - 2000 * 256 * 4);
  EXPECT_EQ(step(x).to_vector<float>(), expected);
  EXPECT_EQ(in_use(), held);
}

TEST(ProgramMemory, ConcurrentRunsHaveSeparateMemory) {
  const auto shared = function(layers_of);
  std::vector<std::thread> threads;
  for (std::int64_t count : {3, 5, 7})
    threads.emplace_back([&, count] {
      const NoGradScope no_grad;
      const Tensor x = rows(count);
      const std::vector<float> expected = layers_of(x).to_vector<float>();
      for (int i = 0; i < 50; ++i) EXPECT_EQ(shared(x).to_vector<float>(), expected);
    });
  for (std::thread& thread : threads) thread.join();
}

// --- empty programs ---

TEST(ProgramMemory, AFunctionOfEmptyValuesRuns) {
  const Sequential model({layers::Dense(5, {.activation = "relu", .input_shape = {3}}),
                          layers::BatchNormalization(), layers::Dense(2)});
  const auto forward = function([&](const Tensor& x) { return softmax(model(x)); });
  const NoGradScope no_grad;
  for (int i = 0; i < 2; ++i) EXPECT_EQ(forward(zeros({0, 3})).shape(), Shape({0, 2}));
  EXPECT_EQ(forward(zeros({2, 3})).shape(), Shape({2, 2}));
}

TEST(ProgramMemory, GradientsOfEmptyValuesAreZero) {
  Variable w(ones({3, 4}));
  const auto forward = function([&](const Tensor& x) { return tanh(matmul(x, w)) * 2.0; });
  GradientTape tape;
  const Tensor loss = reduce_sum(forward(zeros({0, 3})));
  EXPECT_EQ(tape.gradient(loss, w).to_vector<float>(), std::vector<float>(12, 0.0f));
}

TEST(ProgramMemory, ASessionRunsOnEmptyValues) {
  Graph graph;
  Tensor x, y;
  {
    const GraphScope building(graph);
    x = placeholder(float32, {-1, 3}, "x");
    y = tanh(softmax(x) * 2.0) + 1.0;
  }
  Session session(graph);
  EXPECT_EQ(session.run({{x, ones({2, 3})}}, y).shape(), Shape({2, 3}));
  EXPECT_EQ(session.run({{x, zeros({0, 3})}}, y).shape(), Shape({0, 3}));
}

}  // namespace
}  // namespace tandem::program_memory_test
