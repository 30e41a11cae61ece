// The batches of tensors that fit(), evaluate() and predict() are given.
#include <gtest/gtest.h>

#include <functional>

#include "support/trace.h"
#include "tandem/tandem.h"

namespace tandem::tensor_batches_test {
namespace {

using testing::TemporaryDirectory;

// Whether `run` makes batches on a thread of their own.
bool prefetches(const std::function<void()>& run) {
  const TemporaryDirectory directory;
  profiler::start({.file = directory / "t"});
  run();
  profiler::stop();
  return !testing::select(testing::read_trace(directory / "t"), "prefetch", "host").empty();
}

TEST(TensorBatches, AThreadMakesOnlyThoseThatAreCopies) {
  Sequential model({layers::Dense(2, {.input_shape = {16}})});
  model.compile({.optimizer = "sgd", .loss = "mse"});
  const Tensor x = random::normal({64, 16}), y = random::normal({64, 2});
  EXPECT_FALSE(prefetches([&] { model.predict(x); }));
  EXPECT_FALSE(prefetches([&] { model.predict(x, {.batch_size = 64}); }));
  EXPECT_FALSE(prefetches([&] { model.evaluate(x, y, {.verbose = 0}); }));
  EXPECT_FALSE(prefetches([&] { model.fit(x, y, {.verbose = 0, .shuffle = false}); }));
  EXPECT_FALSE(prefetches([&] { model.fit(x, y, {.batch_size = 64, .verbose = 0}); }));
  EXPECT_TRUE(prefetches([&] { model.fit(x, y, {.verbose = 0}); }));
}

}  // namespace
}  // namespace tandem::tensor_batches_test
