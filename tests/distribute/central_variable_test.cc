// A variable with a single copy on the CPU that all replicas on GPUs read: it only needs a
// storage and a creator.
#include <gtest/gtest.h>

#include <mutex>

#include "device/device_manager.h"
#include "distribute/strategy_impl.h"
#include "runtime/variable_impl.h"
#include "support/copies.h"
#include "support/gpus.h"
#include "tandem/tandem.h"

namespace tandem {
namespace {

using distribute::MirroredStrategy;
using distribute::PerReplica;

class CentralStorage final : public VariableStorage {
 public:
  CentralStorage(const Tensor& initial_value, std::span<Device* const> readers, bool trainable)
      : VariableStorage(readers, 1, trainable), value_(on_host(initial_value)) {}

  Device& home(std::size_t) const override { return DeviceManager::get().host(); }
  const void* identity(std::size_t) const override { return &value_; }
  Tensor value(std::size_t reader) override {
    const std::lock_guard lock(mutex_);
    return of_reader(reader, make_alias(value_));
  }
  Tensor read(std::size_t reader) override {
    return of_reader(reader, copy_to_device(value(reader), device(reader)));
  }
  Tensor writable(std::size_t) override {
    const std::lock_guard lock(mutex_);
    const TensorImpl& impl = impl_of(value_);
    if (!impl.unique() || !impl.storage->unique()) value_ = on_host(value_);
    return value_;
  }
  void store(std::size_t, const Tensor& value) override {
    const std::lock_guard lock(mutex_);
    value_ = on_host(value);
  }
  std::unique_ptr<VariableStorage> make_slot(const Tensor& initial_value) const override {
    std::vector<Device*> readers;
    for (std::size_t i = 0; i < num_readers(); ++i) readers.push_back(&device(i));
    return std::make_unique<CentralStorage>(initial_value, readers, false);
  }

 private:
  static Tensor on_host(const Tensor& value) {
    Tensor copy = make_tensor(DeviceManager::get().host(), value.shape(), value.dtype());
    copy_into(copy, value);
    return copy;
  }

  std::mutex mutex_;  // guards the handle; elements only change between steps
  Tensor value_;
};

class CentralCreator final : public VariableCreator {
 public:
  explicit CentralCreator(distribute::StrategyImpl& strategy) : strategy_(strategy) {}
  RefPtr<VariableImpl> create(const Tensor& initial_value, VariableOptions options) override {
    auto storage =
        std::make_unique<CentralStorage>(initial_value, strategy_.devices(), options.trainable);
    return make_ref<VariableImpl>(std::move(storage), impl_of(initial_value), std::move(options),
                                  nullptr, strategy_.mark());
  }

 private:
  distribute::StrategyImpl& strategy_;
};

struct Trained {
  std::vector<float> losses;
  std::vector<std::vector<float>> variables;
};

// Trains two replicas by SGD with momentum.
class Training {
 public:
  explicit Training(bool central)
      : strategy_({.devices = {"/gpu:0", "/gpu:1"}}), creator_(*strategy_.impl()) {
    const auto scope = strategy_.scope();
    std::optional<VariableCreatorScope> in_one_place;
    if (central) in_one_place.emplace(&creator_);
    w = Variable(constant({{0.5f}, {-0.25f}}), {.name = "w"});
    b = Variable(constant({0.125f}), {.name = "b", .aggregation = VariableAggregation::kMean});
  }

  Trained run(bool traced) {
    const auto replica_step = [&](const data::Example& batch) {
      const Tensor loss = reduce_sum(square(matmul(batch[0], w) + b - batch[1])) / 4.0;
      optimizer.minimize(loss, {w, b});
      return loss;
    };
    const data::Example batch = {
        constant({{1.0f, 2.0f}, {-1.0f, 0.5f}, {0.25f, -3.0f}, {2.0f, 2.0f}}),
        constant({{1.0f}, {0.5f}, {-2.0f}, {0.0f}})};
    const auto step = [&](const PerReplica<data::Example>& parts) {
      return strategy_.reduce(ReduceOp::kSum, strategy_.run(replica_step, parts));
    };
    const auto parts = [&](const Tensor& x, const Tensor& y) {
      return strategy_.impl()->split({x, y});
    };
    const auto replayed =
        function([&](const Tensor& x, const Tensor& y) { return step(parts(x, y)); });
    Trained result;
    for (int i = 0; i < 5; ++i)
      result.losses.push_back(
          (traced ? replayed(batch[0], batch[1]) : step(parts(batch[0], batch[1]))).item<float>());
    for (const std::vector<Variable>& variables :
         {std::vector<Variable>{w, b}, optimizer.variables()})
      for (const Variable& variable : variables)
        if (variable.dtype() == float32)
          result.variables.push_back(testing::copies_of(variable).back().to_vector<float>());
    return result;
  }

  Variable w, b;
  optimizers::Optimizer optimizer = optimizers::SGD({.learning_rate = 0.1, .momentum = 0.9});
  MirroredStrategy strategy_;
  CentralCreator creator_;
};

class CentralVariable : public ::testing::TestWithParam<bool> {};

TEST_P(CentralVariable, StepsOnGpusHaveTheSameBitsAsCopiesOnEach) {
  TANDEM_EMULATION_ONLY("the copies of a CPU and a real GPU differ in their last bits");
  testing::use_gpus(2);
  Training central(true), mirrored(false);
  const Trained actual = central.run(GetParam()), expected = mirrored.run(GetParam());
  EXPECT_EQ(actual.losses, expected.losses);
  EXPECT_EQ(actual.variables, expected.variables);
  EXPECT_LT(actual.losses.back(), actual.losses.front());
  EXPECT_EQ(central.optimizer.iterations(), 5);
  const std::vector<Variable> slots = central.optimizer.variables();
  ASSERT_EQ(slots.size(), 3u);
  for (const Variable& variable : {central.w, central.b, slots[1], slots[2]}) {
    EXPECT_EQ(variable.device(), DeviceManager::get().host().full_name());
    EXPECT_EQ(testing::copies_of(variable).size(), 1u);
  }
  EXPECT_EQ(testing::copies_of(mirrored.w).size(), 2u);
}
INSTANTIATE_TEST_SUITE_P(Eager, CentralVariable, ::testing::Values(false));
INSTANTIATE_TEST_SUITE_P(Traced, CentralVariable, ::testing::Values(true));

TEST(CentralVariableReplicas, ReadOnTheirGpusAndAssignOnce) {
  TANDEM_EMULATION_ONLY("names emulated GPUs");
  testing::use_gpus(2);
  Training training(true);
  const auto devices = training.strategy_.run([&] {
    const std::string device = training.b.value().device();
    training.b.assign_add(constant({1.0f}));
    return device;
  });
  EXPECT_NE(devices[0], devices[1]);
  EXPECT_EQ(training.b.value().to_vector<float>(), std::vector<float>{1.125f});
  training.b.assign(constant({4.0f}));
  EXPECT_EQ(training.b.value().to_vector<float>(), std::vector<float>{4.0f});
}

}  // namespace
}  // namespace tandem
