// Compares grouped updates of many variables with separate updates.
#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "support/tensors.h"
#include "tandem/tandem.h"

namespace tandem::grouped_update_test {
namespace {

using optimizers::Optimizer;

struct Rule {
  const char* name;
  std::function<Optimizer(const optimizers::LearningRate& rate)> make;
};

std::vector<Rule> rules() {
  using namespace optimizers;  // NOLINT: factories, of which only the names differ
  return {
      {"SGD", [](const auto& rate) { return SGD({.learning_rate = rate}); }},
      {"momentum", [](const auto& rate) { return SGD({.learning_rate = rate, .momentum = 0.9}); }},
      {"nesterov",
       [](const auto& rate) {
         return SGD(
             {.learning_rate = rate, .momentum = 0.9, .nesterov = true, .weight_decay = 0.01});
       }},
      {"Adam", [](const auto& rate) { return Adam({.learning_rate = rate}); }},
      {"AMSGrad", [](const auto& rate) { return Adam({.learning_rate = rate, .amsgrad = true}); }},
      {"AdamW", [](const auto& rate) { return AdamW({.learning_rate = rate}); }},
      {"RMSprop", [](const auto& rate) { return RMSprop({.learning_rate = rate}); }},
      {"RMSprop with momentum",
       [](const auto& rate) { return RMSprop({.learning_rate = rate, .momentum = 0.5}); }},
      {"centred RMSprop",
       [](const auto& rate) { return RMSprop({.learning_rate = rate, .centered = true}); }},
      {"centred RMSprop with momentum",
       [](const auto& rate) {
         return RMSprop({.learning_rate = rate, .momentum = 0.5, .centered = true});
       }},
      {"Adagrad", [](const auto& rate) { return Adagrad({.learning_rate = rate}); }},
      {"LAMB", [](const auto& rate) { return LAMB({.learning_rate = rate}); }}};
}

// More variables than one launch supports, of different sizes; one is empty, and some are not
// multiples of a pack.
std::vector<std::int64_t> sizes() {
  std::vector<std::int64_t> sizes = {5003, 0, 1, 2048};
  for (std::int64_t size = 1; size < 100; ++size) sizes.push_back(size);
  return sizes;
}

std::vector<Tensor> gradients_at(int step, DType dtype, const std::vector<std::int64_t>& sizes) {
  std::vector<Tensor> gradients;
  for (std::size_t i = 0; i < sizes.size(); ++i)
    gradients.push_back(testing::random_tensor(
        {sizes[i]}, static_cast<std::uint32_t>(1000 * step) + static_cast<std::uint32_t>(i), -1, 1,
        dtype));
  return gradients;
}

// The variables and slots after some steps.
std::vector<std::vector<double>> updated(const Rule& rule, DType dtype, bool grouped,
                                         const std::vector<std::int64_t>& sizes) {
  std::vector<Variable> variables;
  for (std::size_t i = 0; i < sizes.size(); ++i)
    variables.emplace_back(
        testing::random_tensor({sizes[i]}, static_cast<std::uint32_t>(i), -1, 1, dtype));
  Optimizer optimizer = rule.make(optimizers::LearningRate::Schedule(
      [](std::int64_t step) { return 0.1 / (1.0 + static_cast<double>(step)); }));
  const auto step = [&](const std::vector<Tensor>& gradients) {
    optimizer.apply_gradients(gradients, variables);
    return gradients[0];
  };
  const auto traced = function(step);
  for (int i = 0; i < 3; ++i) {  // the program runs directly, is recorded, and is replayed
    const auto gradients = gradients_at(i, dtype, sizes);
    grouped ? traced(gradients) : step(gradients);
  }
  std::vector<std::vector<double>> values;
  for (const Variable& variable : variables) values.push_back(testing::values_of(variable.value()));
  for (const Variable& variable : optimizer.variables())
    if (variable.dtype() == dtype) values.push_back(testing::values_of(variable.value()));
  return values;
}

TEST(GroupedUpdate, EqualsSeparateUpdatesBitwise) {
  for (const Rule& rule : rules()) {
    SCOPED_TRACE(rule.name);
    const std::vector<std::int64_t> some = {3, 0, 70, 1, 5003};
    EXPECT_EQ(updated(rule, float32, true, some), updated(rule, float32, false, some));
  }
}

TEST(GroupedUpdate, OfManyVariables) {
  const Rule adam = rules()[3];
  EXPECT_EQ(updated(adam, float32, true, sizes()), updated(adam, float32, false, sizes()));
}

TEST(GroupedUpdate, OfEveryDType) {
  for (const DType dtype : testing::kFloatingTypes)
    for (const Rule& rule : {rules()[1], rules()[3]}) {
      SCOPED_TRACE(::testing::Message() << rule.name << " " << name_of(dtype));
      const std::vector<std::int64_t> some = {3, 70, 1, 9000};
      EXPECT_EQ(updated(rule, dtype, true, some), updated(rule, dtype, false, some));
    }
}

// Variables of several dtypes, and a variable that is updated twice.
TEST(GroupedUpdate, GroupsOnlyCompatibleUpdates) {
  for (const bool grouped : {false, true}) {
    Variable a(ones({600})), b(ones({600}, {.dtype = float64})), c(ones({600}));
    Optimizer sgd = optimizers::SGD({.learning_rate = 0.5}), slow = optimizers::SGD();
    const auto step = [&](const Tensor& x, const Tensor& y) {
      sgd.apply_gradients({x, y, x}, {a, b, c});
      sgd.apply_gradients({x}, {a});
      slow.apply_gradients({x}, {c});
      return x;
    };
    const Tensor x = ones({600}), y = ones({600}, {.dtype = float64});
    const auto traced = function(step);
    for (int i = 0; i < 3; ++i) grouped ? traced(x, y) : step(x, y);
    EXPECT_EQ(a.value().to_vector<float>(), std::vector<float>(600, -2.0f));
    EXPECT_EQ(b.value().to_vector<double>(), std::vector<double>(600, -0.5));
    EXPECT_NEAR(c.value().to_vector<float>()[599], -0.53f, 1e-6);
  }
}

}  // namespace
}  // namespace tandem::grouped_update_test
