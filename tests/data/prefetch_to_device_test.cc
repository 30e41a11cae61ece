#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <future>

#include "data/pipelines.h"
#include "support/errors.h"
#include "support/gpus.h"
#include "support/waiting.h"
#include "tandem/data.h"
#include "tandem/device.h"
#include "tandem/math.h"
#include "tensor/tensor_impl.h"

namespace tandem::prefetch_to_device_test {
namespace {

using data::Dataset;
using data::Example;
using testing::batches_of;
using testing::error_of;
using testing::generated;
using testing::numbers;

const std::string kGpu = "/job:localhost/replica:0/task:0/device:GPU:0";

TEST(PrefetchToDevice, YieldsTheSameElementsOnTheDevice) {
  testing::use_gpus(1, 64);
  const Dataset plain = numbers(20).shuffle(20, {.seed = 3}).batch(8);
  for (const std::int64_t buffer : {1, 2, 9}) {
    const Dataset ahead = plain.prefetch_to_device("/gpu:0", buffer);
    EXPECT_EQ(ahead.cardinality(), 3);
    data::Iterator iterator = ahead.iterate({.epoch = 1});
    const auto first = iterator.next();
    ASSERT_TRUE(first);
    EXPECT_EQ(first[0].device(), kGpu);
    EXPECT_EQ(batches_of(ahead.iterate({.epoch = 1})), batches_of(plain.iterate({.epoch = 1})));
    EXPECT_EQ(batches_of(ahead.iterate(iterator.position())),
              batches_of(plain.iterate({.epoch = 1, .skip = 1})));
  }
}

TEST(PrefetchToDevice, EndsWhereTheDataEnds) {
  testing::use_gpus(1, 64);
  data::Iterator iterator = numbers(2).prefetch_to_device("/gpu:0").iterate();
  EXPECT_TRUE(iterator.next());
  EXPECT_TRUE(iterator.next());
  EXPECT_FALSE(iterator.next());
  EXPECT_FALSE(iterator.next());
  EXPECT_FALSE(numbers(2).take(0).prefetch_to_device("/gpu:0").iterate().next());
}

TEST(PrefetchToDevice, ReportsAnErrorAfterTheElementsBeforeIt) {
  testing::use_gpus(1, 64);
  const Dataset data = generated(9).map([](const Example& e) {
    if (e[0].item<std::int32_t>() == 3) throw NotFoundError("the fourth");
    return e;
  });
  data::Iterator iterator = data.prefetch_to_device("/gpu:0").iterate();
  for (std::int32_t i = 0; i < 3; ++i) EXPECT_EQ(iterator.next()[0].item<std::int32_t>(), i);
  EXPECT_EQ(error_of<NotFoundError>([&] { iterator.next(); }), "the fourth");
  EXPECT_FALSE(iterator.next());
}

TEST(PrefetchToDevice, FreesElementsThatAreNotConsumed) {
  testing::use_gpus(1, 64);
  const auto in_use = [] { return config::get_memory_info("GPU:0").current; };
  {
    data::Iterator iterator = numbers(1000).batch(100).prefetch_to_device("/gpu:0", 4).iterate();
    const auto first = iterator.next();
    EXPECT_GE(in_use(), 400);
  }
  EXPECT_EQ(in_use(), 0);
}

TEST(PrefetchToDevice, ProducesNoMoreThanItsBufferAhead) {
  testing::use_gpus(1, 64);
  std::atomic<int> taken{0}, most{0};
  const Dataset data = Dataset::from_generator([&] {
    return [&, made = 0]() mutable -> std::optional<Example> {
      if (made == 50) return std::nullopt;
      most = std::max(most.load(), ++made - taken);
      return Example{constant(made)};
    };
  });
  data::Iterator iterator = data.prefetch_to_device("/gpu:0", 3).iterate();
  // The consumed element, the buffer, and the element that the producer holds.
  EXPECT_EQ(iterator.next()[0].item<std::int32_t>(), 1);
  EXPECT_TRUE(testing::eventually([&] { return most == 5; }));
  for (int i = 2; i <= 50; ++i) {
    ++taken;
    EXPECT_EQ(iterator.next()[0].item<std::int32_t>(), i);
  }
  EXPECT_EQ(most, 5);
}

TEST(PrefetchToDevice, TakingAnElementDoesNotWaitForTheDevice) {
  testing::use_gpus(1, 64);
  data::Iterator iterator = numbers(3).batch(1).prefetch_to_device("/gpu:0").iterate();
  const auto first = iterator.next();
  const DeviceScope gpu("/gpu:0");
  // Loads the kernel, for which CUDA may wait for the device.
  EXPECT_EQ((first[0] + first[0]).to_vector<std::int32_t>(), std::vector<std::int32_t>{0});
  std::promise<void> open;
  impl_of(first[0]).device().stream().enqueue([held = open.get_future().share()] { held.wait(); });
  const Tensor second = iterator.next()[0] + first[0];
  const Tensor third = iterator.next()[0] + second;
  EXPECT_FALSE(iterator.next());
  open.set_value();
  EXPECT_EQ(second.to_vector<std::int32_t>(), std::vector<std::int32_t>{1});
  EXPECT_EQ(third.to_vector<std::int32_t>(), std::vector<std::int32_t>{3});
}

TEST(PrefetchToDevice, EqualsPrefetchOnACpu) {
  const Dataset data = numbers(20).batch(8);
  const Dataset ahead = data.prefetch_to_device("/cpu:0");
  EXPECT_EQ(batches_of(ahead.iterate()), batches_of(data.iterate()));
}

TEST(PrefetchToDevice, RejectsInvalidArguments) {
  testing::use_gpus(1, 64);
  EXPECT_EQ(error_of<InvalidArgumentError>([] { numbers(3).prefetch_to_device("/gpu:0", 0); }),
            "[prefetch_to_device] expected a buffer of at least 1 element, got 0");
  EXPECT_NE(error_of<InvalidArgumentError>([] {
              numbers(3).prefetch_to_device("/gpu:7");
            }).find("[prefetch_to_device] there is no device '/gpu:7'; available devices are"),
            std::string::npos);
}

}  // namespace
}  // namespace tandem::prefetch_to_device_test
