#include "tandem/module.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "support/files.h"
#include "support/tensors.h"
#include "tandem/array.h"
#include "tandem/autodiff.h"
#include "tandem/creation.h"
#include "tandem/device.h"
#include "tandem/math.h"
#include "tandem/model.h"
#include "tandem/nn.h"
#include "tandem/random.h"

namespace tandem::module_test {
namespace {

using testing::expect_error;
using testing::values_of;

struct Net : nn::Module {
  explicit Net(double rate = 0.0) {
    fc1 = register_module("fc1", nn::Linear(3, 4));
    drop = register_module("drop", nn::Dropout(rate));
    fc2 = register_module("fc2", nn::Linear(4, 2, {.bias = false}));
  }
  Tensor forward(Tensor x) {
    x = drop(nn::relu(fc1->forward(x)));
    return fc2(x);
  }
  nn::Linear fc1{nullptr}, fc2{nullptr};
  nn::Dropout drop{nullptr};
};

void expect_values(const Tensor& actual, const std::vector<double>& expected,
                   double tolerance = 1e-6) {
  const std::vector<double> values = values_of(actual);
  ASSERT_EQ(values.size(), expected.size());
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], expected[i], tolerance);
}

std::vector<std::string> names_of(const nn::ModuleBase& module) {
  std::vector<std::string> names;
  for (const auto& [name, variable] : module.named_parameters()) names.push_back(name);
  return names;
}

TEST(NamedParameters, HaveLibtorchsNames) {
  nn::Linear linear(2, 3);
  std::vector<std::string> keys;
  for (const auto& parameter : linear->named_parameters()) {
    keys.push_back(parameter.key());
    EXPECT_EQ(parameter.value().shape(), parameter.second.shape());
  }
  EXPECT_EQ(keys, (std::vector<std::string>{"weight", "bias"}));
  const NamedParameters parameters = linear->named_parameters();
  EXPECT_EQ(parameters["bias"].shape(), Shape({3}));
  EXPECT_EQ(parameters[0].key(), "weight");
  EXPECT_TRUE(parameters.contains("bias"));
  EXPECT_FALSE(parameters.contains("kernel"));
  expect_error<NotFoundError>([&] { parameters["kernel"]; },
                              "no parameter 'kernel'; there are: weight, bias");
  const std::vector<std::pair<std::string, Variable>> pairs = parameters;
  EXPECT_EQ(pairs[1].first, "bias");
}

TEST(Module, HasParametersWhenItIsMade) {
  Net net;
  EXPECT_EQ(net.parameters().size(), 3u);
  EXPECT_EQ(names_of(net), (std::vector<std::string>{"fc1.weight", "fc1.bias", "fc2.weight"}));
  EXPECT_EQ(net.fc1->weight.shape(), Shape({4, 3}));
  EXPECT_EQ(net.fc1->weight.name(), "fc1/weight");
  EXPECT_EQ(net.forward(ones({5, 3})).shape(), Shape({5, 2}));
  EXPECT_FALSE(net.fc2->bias.defined());
}

// Forms of forward() that people write: with override, by value, const, and of two inputs.
struct Overriding : nn::Module {
  Overriding() { fc = register_module("fc", nn::Linear(3, 2)); }
  Tensor forward(const Tensor& x) override { return fc(x) * 2; }
  nn::Linear fc;
};
struct ByValue : nn::Module {
  Tensor forward(Tensor x) override { return x * 3; }
};
struct Constant : nn::Module {
  Tensor forward(const Tensor& x) const { return x * 4; }
};
struct OfTwo : nn::Module {
  Tensor forward(const Tensor& a, const Tensor& b) override { return a - b; }
};
struct OfTwoByValue : nn::Module {
  Tensor forward(Tensor a, Tensor b) { return a + b; }
};
struct Derived : ByValue {};
struct OfThree : nn::Module {
  Tensor forward(const Tensor& a, const Tensor& b, const Tensor& c) { return a + b + c; }
};

TEST(Module, IsCallableWithEachFormOfForward) {
  Overriding overriding;
  const Tensor x = ones({1, 3});
  expect_values(overriding(x), values_of(overriding.fc(x) * 2));
  EXPECT_EQ(overriding.named_children().size(), 1u);
  EXPECT_EQ(overriding.named_children()[0].first, "fc");
  ByValue by_value;
  Constant of_const;
  Derived derived;
  expect_values(by_value(ones({1})), {3});
  expect_values(of_const(ones({1})), {4});
  expect_values(derived(ones({1})), {3});
  OfTwo of_two;
  OfTwoByValue of_two_by_value;
  expect_values(of_two(full({1}, 5.0), ones({1})), {4});
  expect_values(of_two_by_value(full({1}, 5.0), ones({1})), {6});
  // As layers.
  expect_values(Layer(overriding)(x), values_of(overriding(x)));
  expect_values(Layer(of_const)(ones({1})), {4});
  expect_values(Layer(of_two)({full({1}, 5.0), ones({1})}), {4});
}

struct ActorCritic : nn::ModuleBase {
  ActorCritic() {
    actor = register_module("actor", nn::Linear(3, 4));
    critic = register_module("critic", nn::Linear(3, 1));
  }
  std::tuple<Tensor, Tensor> forward(const Tensor& x) { return {actor(x), critic(x)}; }
  nn::Linear actor{nullptr}, critic{nullptr};
};

TEST(ModuleBase, HasAForwardOfSeveralResults) {
  ActorCritic net;
  EXPECT_EQ(names_of(net), (std::vector<std::string>{"actor.weight", "actor.bias", "critic.weight",
                                                     "critic.bias"}));
  EXPECT_TRUE(net.is_training());
  const auto [logits, value] = net.forward(ones({2, 3}));
  EXPECT_EQ(logits.shape(), Shape({2, 4}));
  EXPECT_EQ(value.shape(), Shape({2, 1}));
  (reduce_sum(logits) + reduce_sum(value)).backward();
  for (const Variable& parameter : net.parameters()) EXPECT_TRUE(parameter.grad().defined());
  // A holder calls it, a traced function as well.
  const nn::ModuleHolder<ActorCritic> held(std::make_shared<ActorCritic>());
  const auto traced = function([&](const Tensor& x) { return held(x); });
  const auto [eager_logits, eager_value] = held(ones({2, 3}));
  const auto [traced_logits, traced_value] = traced(ones({2, 3}));
  expect_values(traced_logits, values_of(eager_logits));
  expect_values(traced_value, values_of(eager_value));
  // As a layer it would have one result.
  expect_error<UnimplementedError>(
      [&] {
        Layer{net}(ones({2, 3}));
      },
      "[actor_critic] expected a class with td::Tensor forward");
}

TEST(Module, WithoutAFittingForwardThrows) {
  nn::Module none;
  OfThree of_three;
  const Tensor x = ones({1});
  expect_error<UnimplementedError>([&] { static_cast<void>(none(x)); },
                                   "expected a class with td::Tensor forward(const td::Tensor& x)");
  expect_error<UnimplementedError>([&] { static_cast<void>(of_three(x, x)); },
                                   "forward(const td::Tensor& a, const td::Tensor& b)");
  expect_error<UnimplementedError>([&] { static_cast<void>(Layer(none)(x)); },
                                   "expected a class with td::Tensor forward");
  expect_values(of_three.forward(x, x, x), {3});
}

TEST(Module, HandlesAreEmptyAtFirstAndHaveTheParametersOfTheirModules) {
  nn::Linear linear;
  nn::Embedding embedding;
  nn::LayerNorm norm;
  EXPECT_TRUE(linear.is_empty() && embedding.is_empty() && norm.is_empty());
  EXPECT_FALSE(linear.weight.defined());
  expect_error<FailedPreconditionError>([&] { linear(ones({1, 3})); }, "an empty module was used");
  linear = nn::Linear(3, 2);
  embedding = nn::Embedding(4, 2);
  norm = nn::LayerNorm(2);
  EXPECT_EQ(linear.weight, linear->weight);
  EXPECT_EQ(linear.bias, linear->bias);
  EXPECT_EQ(embedding.weight, embedding->weight);
  EXPECT_EQ(norm.weight, norm->weight);
  EXPECT_EQ(norm.bias, norm->bias);
  EXPECT_FALSE(nn::Linear(3, 2, false).bias.defined());
  EXPECT_EQ(nn::Linear(linear.ptr()).weight, linear.weight);
}

TEST(Module, ForwardHooksSeeAndReplaceTheOutput) {
  nn::ReLU relu;
  std::vector<double> seen;
  nn::RemovableHandle first = relu.register_forward_hook(
      [&](const nn::Module& module, const Tensor& input, const Tensor& output) {
        EXPECT_EQ(module.kind(), "relu");
        seen.push_back(values_of(input)[0]);
        seen.push_back(values_of(output)[0]);
      });
  nn::RemovableHandle second = relu->register_forward_hook(
      [](const nn::Module&, const Tensor&, const Tensor& output) { return output + 10; });
  const Tensor x = constant({-1.0f});
  expect_values(relu(x), {10});
  expect_values(relu->forward(x), {0});
  // Also where the module is a part of others.
  expect_values(nn::Sequential(relu)(x), {10});
  second.remove();
  second.remove();
  expect_values(relu(x), {0});
  first.remove();
  expect_values(relu(x), {0});
  EXPECT_EQ(seen, (std::vector<double>{-1, 0, -1, 0, -1, 0}));
  ByValue own;
  own.register_forward_hook(
      [](const nn::Module&, const Tensor& input, const Tensor& output) { return output - input; });
  expect_values(own(ones({1})), {2});
  expect_values(Layer(own)(ones({1})), {2});
  nn::RemovableHandle of_gone;
  {
    ByValue gone;
    of_gone = gone.register_forward_hook([](const nn::Module&, const Tensor&, const Tensor&) {});
  }
  of_gone.remove();
}

TEST(Module, ToAcceptsWhereItIsAlone) {
  const DeviceScope cpu("/cpu:0");
  Net net;
  EXPECT_EQ(&net.to("/cpu:0"), &net);
  EXPECT_EQ(&net.to(float32), &net);
  expect_error<UnimplementedError>([&] { net.to(float64); },
                                   "'fc1.weight' is of float32 and stays so");
}

TEST(Linear, StartsAsInPyTorchAndComputesOverTheLastAxis) {
  const nn::Linear linear(100, 50);
  double largest = 0.0;
  for (double value : values_of(linear->weight.value()))
    largest = std::max(largest, std::abs(value));
  EXPECT_LE(largest, 0.1);
  EXPECT_GT(largest, 0.09);
  nn::Linear small(2, 1);
  small->weight.assign(constant({2.0f, 3.0f}, {.shape = {1, 2}}));
  small->bias.assign(constant({1.0f}));
  expect_values(small(ones({2, 2})), {6, 6});
  EXPECT_EQ(small(ones({4, 5, 2})).shape(), Shape({4, 5, 1}));
  expect_values(reshape(small(ones({1, 2, 2})), {2}), {6, 6});
  expect_error<InvalidArgumentError>(
      [&] {
        small(ones({2, 3}));
      },
      "[linear] expected an input whose last axis has 2 elements");
}

TEST(Module, BackwardReachesTheParameters) {
  Net net;
  reduce_sum(net.forward(ones({5, 3}))).backward();
  for (const Variable& parameter : net.parameters()) EXPECT_TRUE(parameter.grad().defined());
  net.zero_grad();
  EXPECT_FALSE(net.parameters()[0].grad().defined());
}

TEST(Module, StartsInTrainingModeAndPassesItsModeOn) {
  Net net(0.5);
  EXPECT_TRUE(net.is_training());
  net.eval();
  EXPECT_FALSE(net.drop->is_training());
  expect_values(net.drop(ones({3})), {1, 1, 1});
  net.train();
  EXPECT_TRUE(net.drop->is_training());
  const auto values = values_of(net.drop(ones({1000})));
  EXPECT_GT(std::count(values.begin(), values.end(), 0.0), 300);
}

TEST(Module, CopiesShareParameters) {
  Net net;
  Net copy = net;
  copy.fc1->bias.assign(full({4}, 3.0));
  EXPECT_EQ(values_of(net.fc1->bias.value())[0], 3.0);
  copy.eval();
  EXPECT_FALSE(net.is_training());
  EXPECT_EQ(copy.named_parameters().size(), 3u);
}

TEST(Module, StateDictsHaveDottedNames) {
  Net a, b;
  const std::map<std::string, Tensor> state = a.state_dict();
  EXPECT_TRUE(state.contains("fc1.weight"));
  b.load_state_dict(state);
  const Tensor x = ones({2, 3});
  expect_values(b.forward(x) - a.forward(x), {0, 0, 0, 0});
  expect_error<InvalidArgumentError>([&] { b.load_state_dict({}); }, "missing: 'fc1.weight'");
}

TEST(Module, IsSavedByItsNames) {
  const testing::TemporaryDirectory folder;
  Net a, b;
  save(a.state_dict(), folder / "net.pt");
  load(b, folder / "net.pt");
  save(b, folder / "b");
  EXPECT_TRUE(load(folder / "b").contains("fc2.weight"));
  const Tensor x = ones({2, 3});
  expect_values(b.forward(x) - a.forward(x), {0, 0, 0, 0});
}

TEST(Module, IsALayerAndAModel) {
  Net net;
  const Model model(net);
  const Tensor x = ones({2, 3});
  expect_values(model(x) - net.forward(x), {0, 0, 0, 0});
  EXPECT_EQ(model.variables().size(), 3u);
  EXPECT_TRUE(model.state_dict().contains("fc1.bias"));
  const Sequential stack(
      {layers::Dense(3), net, layers::Dense(3), std::make_shared<Net>(), nn::Linear(2, 5)});
  EXPECT_EQ(stack(x).shape(), Shape({2, 5}));
  EXPECT_EQ(net.fc1->weight.name(), "net/fc1/weight");
  EXPECT_EQ(stack.trainable_variables().size(), 2u + 3 + 2 + 3 + 2);
}

TEST(Module, TrainsAsAModel) {
  Net net;
  Model model(net);
  model.compile({.optimizer = optimizers::SGD(0.05), .loss = "mse"});
  const Tensor x = ones({8, 3}), y = zeros({8, 2});
  const History history = model.fit(x, y, {.epochs = 20, .verbose = 0});
  EXPECT_LT(history.at("loss").back(), history.at("loss").front());
  expect_values(model(x) - net.forward(x), std::vector<double>(16, 0.0));
}

TEST(Module, ModulesNest) {
  struct Outer : nn::Module {
    Outer() {
      inner = register_module("inner", std::make_shared<Net>());
      scale = register_parameter("scale", ones({2}));
    }
    Tensor forward(const Tensor& x) { return inner->forward(x) * scale; }
    std::shared_ptr<Net> inner;
    Variable scale;
  };
  const Outer outer;
  EXPECT_EQ(names_of(outer), (std::vector<std::string>{"scale", "inner.fc1.weight",
                                                       "inner.fc1.bias", "inner.fc2.weight"}));
  EXPECT_EQ(outer.inner->fc1->weight.name(), "inner/fc1/weight");
}

TEST(NnSequential, CallsItsModules) {
  const auto net = nn::Sequential(nn::Linear(3, 4), nn::ReLU(), nn::Linear(4, 1));
  EXPECT_EQ(net->parameters().size(), 4u);
  EXPECT_EQ(net->size(), 3u);
  EXPECT_EQ(net(ones({2, 3})).shape(), Shape({2, 1}));
  EXPECT_EQ(names_of(*net)[2], "2.weight");
  net->push_back(nn::Tanh());
  EXPECT_LE(values_of(net(ones({1, 3}) * 100.0))[0], 1.0);
}

TEST(NnModuleList, HasTheModulesInTheirOrder) {
  struct Block : nn::ModuleBase {
    Block() { fc = register_module("fc", nn::Linear(3, 3)); }
    Tensor forward(const Tensor& x, double scale) { return fc(x) * scale; }
    nn::Linear fc{nullptr};
  };
  struct Net : nn::Module {
    Net() {
      for (int i = 0; i < 2; ++i) layers->push_back(nn::Linear(3, 3));
      register_module("layers", layers);
      for (int i = 0; i < 2; ++i) blocks.push_back(std::make_shared<Block>());
      register_module("blocks", blocks);
    }
    Tensor forward(Tensor x) override {
      for (const auto& layer : *layers) x = layer(x);
      for (const auto& block : blocks) x = block->as<Block>()->forward(x, 2.0);
      return x;
    }
    nn::ModuleList layers, blocks;
  };
  Net net;
  EXPECT_EQ(net.parameters().size(), 8u);
  EXPECT_EQ(net.named_parameters()[4].key(), "blocks.0.fc.weight");
  const Tensor x = ones({2, 3});
  const auto fc = [](const Layer& layer, const Tensor& value) {
    return layer->as<nn::Linear>()->forward(value);
  };
  const Tensor inner = fc(net.layers[1], fc(net.layers[0], x));
  const Tensor once = net.blocks[0].as<Block>()->fc(inner) * 2.0;
  EXPECT_EQ(net(x).to_vector<float>(),
            (net.blocks[1].as<Block>()->fc(once) * 2.0).to_vector<float>());
  EXPECT_EQ(net.layers[0].as<Block>(), nullptr);
  EXPECT_EQ(nn::ModuleList(nn::Linear(1, 2), nn::ReLU()).size(), 2u);
  expect_error<OutOfRangeError>([&] { net.blocks[2]; },
                                "[ModuleList] expected an index below 2, got 2");
}

TEST(NnSequential, HasTheFunctionsOfItsModule) {
  const nn::Sequential net(nn::Linear(3, 4), nn::Linear(4, 1)),
      other(nn::Linear(3, 4), nn::Linear(4, 1));
  EXPECT_EQ(net.parameters(), net->parameters());
  EXPECT_EQ(net.named_parameters()[3].first, "1.bias");
  other.load_state_dict(net.state_dict());
  EXPECT_EQ(values_of(other(ones({1, 3}))), values_of(net(ones({1, 3}))));
  net.eval();
  EXPECT_FALSE(net.is_training());
  net.train();
  EXPECT_TRUE(net->is_training());
  reduce_sum(net(ones({2, 3}))).backward();
  EXPECT_TRUE(net.parameters()[0].grad().defined());
  net.zero_grad();
  EXPECT_FALSE(net.parameters()[0].grad().defined());
}

TEST(NnSequential, TakesLayers) {
  const auto net = nn::Sequential(layers::Dense(4), nn::ReLU());
  expect_error<FailedPreconditionError>([&] { net->parameters(); }, "'0' has no parameters before");
  net(ones({2, 3}));
  EXPECT_EQ(net->parameters().size(), 2u);
}

TEST(Module, RefusesBadNamesAndEmptyHandles) {
  nn::Module module("m");
  expect_error<InvalidArgumentError>([&] { module.register_module("a.b", nn::ReLU()); },
                                     "[m] expected a name without '.' and '/'");
  module.register_module("a", nn::ReLU());
  expect_error<InvalidArgumentError>([&] { module.register_module("a", nn::ReLU()); },
                                     "there is a module 'a' already");
  const nn::Linear empty{nullptr};
  expect_error<FailedPreconditionError>(
      [&] {
        empty->forward(ones({1, 1}));
      },
      "an empty module was used");
  const Model model(module);
  expect_error<UnimplementedError>([&] { model(ones({1})); }, "forward");
}

TEST(NnModules, ComputeTheirFunctions) {
  const Tensor x = constant({-1.0f, 2.0f}, {.shape = {1, 2}});
  expect_values(nn::ReLU()(x), {0, 2});
  expect_values(nn::LeakyReLU(0.5)(x), {-0.5, 2});
  expect_values(nn::Identity()(x), {-1, 2});
  expect_values(nn::Softmax(1)(zeros({1, 2})), {0.5, 0.5});
  EXPECT_EQ(nn::Flatten()(ones({2, 3, 4})).shape(), Shape({2, 12}));
  EXPECT_EQ(nn::Embedding(5, 3)(constant({1, 4})).shape(), Shape({2, 3}));
  expect_values(nn::LayerNorm(2)(constant({1.0f, 3.0f}, {.shape = {1, 2}})), {-1, 1}, 1e-4);
}

TEST(Init, AssignsInitialValues) {
  random::set_seed(5);
  const Variable matrix(zeros({64, 32})), vector(zeros({3}));
  nn::init::xavier_uniform_(matrix);
  const double limit = std::sqrt(6.0 / 96);
  EXPECT_LE(abs(matrix).max().item(), limit);
  EXPECT_GT(abs(matrix).max().item(), 0.9 * limit);
  nn::init::xavier_normal_(matrix, 2.0);
  EXPECT_NEAR(matrix.value().std().item(), 2.0 * std::sqrt(2.0 / 96), 0.02);
  nn::init::constant_(vector, 4.0);
  EXPECT_EQ(vector.to_vector<float>(), (std::vector<float>{4, 4, 4}));
  nn::init::zeros_(vector);
  EXPECT_EQ(vector.to_vector<float>(), (std::vector<float>{0, 0, 0}));
  testing::expect_error<ShapeError>([&] { nn::init::xavier_uniform_(vector); },
                                    "[xavier_uniform_] expected a matrix, got shape (3,)");
}

TEST(Module, IsSavedInGroups) {
  const testing::TemporaryDirectory folder;
  Net a, b;
  save({{"model", a.state_dict()},
        {"scaler", std::map<std::string, double>{{"scale", 2.5}}},
        {"epoch", 3},
        {"x", ones({2})}},
       folder / "checkpoint.pt");
  const LoadedTensors loaded = load(folder / "checkpoint.pt");
  b.load_state_dict(loaded["model"]);
  const Tensor x = ones({2, 3});
  expect_values(b.forward(x) - a.forward(x), {0, 0, 0, 0});
  const std::map<std::string, double> scaler = loaded["scaler"];
  EXPECT_EQ(scaler, (std::map<std::string, double>{{"scale", 2.5}}));
  EXPECT_EQ(loaded["epoch"].item<std::int32_t>(), 3);
  EXPECT_EQ(loaded["x"].shape(), Shape({2}));
  EXPECT_TRUE(loaded.contains("model.fc1.weight"));
  expect_error<NotFoundError>([&] { loaded["mode"]; }, "[load] the file has no tensor 'mode'");
}

}  // namespace
}  // namespace tandem::module_test
