// Forms of Keras that stand for others: what evaluate() returns, models called in models, dtypes of
// inputs, arguments by position; and layers of one kind with others.
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "support/files.h"
#include "support/tensors.h"
#include "tandem/tandem.h"

namespace tandem::first_names_test {
namespace {

using testing::expect_error;
using testing::expect_tensor;
using testing::values_of;

Sequential linear() {
  return Sequential({layers::Dense(1, {.kernel_initializer = "ones", .input_shape = {2}})});
}

// Keras's add_weight() with the name first.
class Scaled : public layers::Layer {
 public:
  void build(const Shape& shape) override {
    factor = add_weight("factor", {shape[-1]}, {.initializer = "ones", .trainable = false});
  }
  Tensor call(const Tensor& x) override { return x * factor; }
  Variable factor;
};

TEST(AddWeight, TakesNameAndShapeFirst) {
  Scaled layer;
  EXPECT_EQ(testing::values_of(layer(ones({1, 3}))), (std::vector<double>{1, 1, 1}));
  EXPECT_EQ(layer.variables()[0].name(), "scaled/factor");
  EXPECT_FALSE(layer.factor.trainable());
}

TEST(History, ValuesOfATemporaryAreCopies) {
  const auto made = [] { return History{.epoch = {0, 1}, .history = {{"loss", {2.0, 1.0}}}}; };
  double sum = 0;
  for (const double loss : made().at("loss")) sum += loss;
  for (const double loss : made()["loss"]) sum += loss;
  const std::vector<double>& losses = made().at("loss");
  EXPECT_EQ(sum, 6.0);
  EXPECT_EQ(losses, (std::vector<double>{2.0, 1.0}));
}

TEST(History, IsAskedForNames) {
  const Tensor x = ones({4, 2}), y = zeros({4, 1});
  Sequential model = linear();
  model.compile("sgd", "mse");
  const History history = model.fit(x, y, {.verbose = 0});
  EXPECT_TRUE(history.contains("loss"));
  EXPECT_EQ(history.count("val_loss"), 0u);
}

TEST(RootMeanSquaredError, IsTheRootOfTheMean) {
  metrics::RootMeanSquaredError metric;
  metric.update_state(constant({1.0, 2.0}), constant({4.0, 6.0}));
  metric.update_state(constant({0.0}), constant({0.0}));
  EXPECT_DOUBLE_EQ(metric.result(), std::sqrt(25.0 / 3));
  EXPECT_EQ(metrics::Metric("root_mean_squared_error").name(), "root_mean_squared_error");
  EXPECT_EQ(metrics::from_name("root_mean_squared_error").base().larger_is_better(), false);
}

TEST(Result, IsANumberAndATensor) {
  metrics::Mean mean;
  mean.update_state(constant({1.0, 2.0}));
  const Tensor tensor = mean.result();
  EXPECT_EQ(tensor.dtype(), float64);
  EXPECT_EQ(tensor.item(), 1.5);
  EXPECT_EQ(mean.result() * 2.0, 3.0);
  EXPECT_EQ(1 - mean.result(), -0.5);
  EXPECT_EQ(mean.result() / mean.result(), 1.0);
  EXPECT_TRUE(mean.result() > 1 && mean.result() <= 1.5F && 1.5 == mean.result());
  EXPECT_EQ(mean.result().numpy<float>(), 1.5F);
  std::ostringstream out;
  out << mean.result();
  EXPECT_EQ(out.str(), "1.5");
  metrics::Mean other;
  other.update_state(mean.result());
  EXPECT_EQ(other.result(), mean.result());
}

TEST(Variable, HasANameAsItsSecondArgumentAndTakesResults) {
  Variable variable(constant(1.0F), "best");
  EXPECT_EQ(variable.name(), "best");
  metrics::Mean mean;
  mean.update_state(constant({1.0, 2.0}));
  variable.assign(mean.result());
  EXPECT_EQ(variable.numpy<float>(), 1.5F);
  variable.assign_add(mean.result());
  variable.assign_sub(mean.result());
  EXPECT_EQ(variable.numpy<float>(), 1.5F);
}

TEST(Tensor, GivesItsOnlyElementAsANumber) {
  EXPECT_EQ(constant({7}).numpy<int>(), 7);
  expect_error<InvalidArgumentError>([] { constant({1, 2}).numpy<int>(); }, "[item] expected");
}

TEST(Shape, HasOpenSizesAndAFrontAndABack) {
  const Shape shape{std::nullopt, 4, 6};
  EXPECT_EQ(shape, (Shape{-1, 4, 6}));
  EXPECT_EQ(shape.back(), 6);
  EXPECT_EQ((Shape{3, 4}).front(), 3);
  expect_error<InvalidArgumentError>([] { static_cast<void>(Shape::scalar().back()); }, "axis");
}

TEST(Indexing, HasAnEllipsis) {
  const Tensor x = reshape(range(24), {2, 3, 4});
  const auto same = [](const Tensor& a, const Tensor& b) {
    EXPECT_EQ(a.shape(), b.shape());
    EXPECT_EQ(values_of(a), values_of(b));
  };
  same(x(Ellipsis, 1), x(Slice(), Slice(), 1));
  same(x.index({indexing::Ellipsis, Slice(0, 2)}), x(Slice(), Slice(), Slice(0, 2)));
  same(x[{0, Ellipsis}], x[0]);
  same(x.index({1, Ellipsis, 2, 3}), x(1, 2, 3));
  same(x.index({None, Ellipsis, 3}), x(None, Slice(), Slice(), 3));
  same(x.index({Ellipsis, None}), expand_dims(x, -1));
  same(x(Ellipsis), x);
  expect_error<InvalidArgumentError>(
      [&] {
        x.index({Ellipsis, Ellipsis});
      },
      "[at] expected one Ellipsis, got several");
  expect_error<InvalidArgumentError>(
      [&] {
        x.index({0, Ellipsis, 0, 0, 0});
      },
      "[at] expected at most 3 indices");
}

TEST(WhileLoop, TakesItsVariablesAsArguments) {
  const auto collatz = [](const Tensor& n) {
    const auto [last, steps] =
        while_loop([](auto i, auto) { return not_equal(i, 1); },
                   [](auto i, auto s) {
                     const auto next = cond(
                         equal(i % 2, 0), [&] { return i / 2; }, [&] { return 3 * i + 1; });
                     return std::make_tuple(next, s + 1);
                   },
                   n, constant(0));
    EXPECT_EQ(last.dtype(), int32);
    return steps;
  };
  EXPECT_EQ(collatz(constant(6)).numpy<int>(), 8);
  EXPECT_EQ(function(collatz)(constant(7)).numpy<int>(), 16);
  EXPECT_EQ(while_loop([](const Tensor& i) { return i < 10; },
                       [](const Tensor& i) { return i + 4; }, constant(0))[0]
                .item<int>(),
            12);
}

TEST(Evaluate, IsTakenApartIntoLossAndMetric) {
  const Tensor x = ones({4, 2}), y = zeros({4, 1});
  Sequential model = linear();
  model.compile("sgd", "mse", {"mae"});
  const auto [loss, mae] = model.evaluate(x, y);
  EXPECT_EQ(loss, 4.0);
  EXPECT_EQ(mae, 2.0);
  auto result = model.evaluate(x, y);
  EXPECT_EQ(result["loss"], 4.0);
  EXPECT_EQ(result.at("mae"), 2.0);
  expect_error<InvalidArgumentError>([&] { static_cast<void>(double(result)); },
                                     "expected a loss without metrics, got 2 values");
  model.compile("sgd", "mse");
  const double alone = model.evaluate(x, y);
  EXPECT_EQ(alone, 4.0);
  expect_error<InvalidArgumentError>([&] { const auto [a, b] = model.evaluate(x, y); },
                                     "expected a loss and one metric");
  EXPECT_EQ(model.fit(x, y, {.verbose = 0})["loss"].size(), 1u);
  model.optimizer().set_learning_rate(0.5);
  EXPECT_EQ(model.optimizer().learning_rate(), 0.5);
}

TEST(Model, IsCalledInOtherModels) {
  Sequential encoder = linear();
  const SymbolicInput input = Input({2});
  Model whole(input, layers::ReLU()(encoder(input)));
  EXPECT_EQ(whole(full({1, 2}, -1.0)).item(), 0.0);
  EXPECT_EQ(whole(ones({1, 2})).item(), 2.0);
  EXPECT_EQ(whole.trainable_variables().size(), 2u);
}

TEST(Input, CastsToItsDtype) {
  const SymbolicInput input = layers::Input({2}, {.dtype = int32, .name = "numbers"});
  const Model model(input, layers::Lambda([](const Tensor& x) { return x.to(float32); })(input));
  expect_tensor(model(constant({{1.9, -1.9}})), float32, {1, 2}, {1, -1});
  const Sequential stack({layers::Input({.shape = {2}, .dtype = float32}), layers::Dense(1)});
  EXPECT_EQ(stack(ones({1, 2}, int32)).dtype(), float32);
  EXPECT_EQ(stack.layers().size(), 1u);
}

TEST(Layers, PoolPositionsAndActivate) {
  const Tensor x = constant({{{1.0, 4.0}, {3.0, -2.0}}});
  expect_tensor(layers::GlobalAveragePooling1D()(x), float32, {1, 2}, {2, 1});
  expect_tensor(layers::GlobalMaxPooling1D({.keepdims = true})(x), float32, {1, 1, 2}, {3, 4});
  expect_tensor(layers::LeakyReLU(0.5)(constant({{-2.0, 2.0}})), float32, {1, 2}, {-1, 2});
  expect_tensor(layers::ELU()(constant({{-1.0, 2.0}})), float32, {1, 2},
                {std::exp(-1.0) - 1.0, 2.0}, 1e-6);
  expect_error<InvalidArgumentError>(
      [] {
        layers::GlobalAveragePooling1D()(ones({2, 3}));
      },
      "[global_average_pooling1d] expected an input of shape (batch, "
      "positions, features)");
  const layers::GaussianNoise noise(0.5);
  EXPECT_EQ(noise(ones({2, 2})).sum().item(), 4.0);
  EXPECT_NE(noise(ones({2, 2}), true).sum().item(), 4.0);
}

TEST(Layers, MergeInputs) {
  const Tensor a = constant({{1.0, 5.0}}), b = constant({{3.0, 1.0}});
  expect_tensor(layers::Subtract()({a, b}), float32, {1, 2}, {-2, 4});
  expect_tensor(layers::Average()({a, b, b}), float32, {1, 2}, {7.0 / 3, 7.0 / 3}, 1e-6);
  expect_tensor(layers::Maximum()({a, b}), float32, {1, 2}, {3, 5});
  expect_error<InvalidArgumentError>(
      [&] {
        layers::Subtract()({a, b, b});
      },
      "[subtract] expected two inputs, got 3");
}

TEST(Layers, MergeSymbolicInputsByFunctions) {
  const SymbolicInput a = Input({2}), b = Input({2});
  const Model sum({a, b}, layers::add({a, b}));
  expect_tensor(sum({ones({1, 2}), ones({1, 2})}), float32, {1, 2}, {2, 2});
  const Model wide({a, b}, layers::concatenate({a, b}));
  EXPECT_EQ(wide({ones({3, 2}), ones({3, 2})}).shape(), Shape({3, 4}));
}

TEST(Losses, TakeFromLogitsFirst) {
  const Tensor y = constant({1}), logits = constant({{0.0, 2.0}});
  EXPECT_EQ(losses::SparseCategoricalCrossentropy(true)(y, logits).item(),
            losses::SparseCategoricalCrossentropy({.from_logits = true})(y, logits).item());
}

TEST(Layer, IsUsedAsAPointer) {
  const Layer layer = layers::Dense(2, {.kernel_initializer = "ones"});
  EXPECT_EQ(values_of(layer(ones({1, 3}))), (std::vector<double>{3, 3}));
  EXPECT_EQ(layer->name(), layer.name());
  EXPECT_EQ(layer->variables().size(), 2u);
  Sequential model = linear();
  model->set_trainable(false);
  EXPECT_TRUE(model.trainable_variables().empty());
}

TEST(Example, IsItsOnlyComponent) {
  const data::Example one({constant({1.5f, 2.5f})});
  EXPECT_EQ(values_of(one.numpy()), (std::vector<double>{1.5, 2.5}));
  const data::Example two({constant(1.0), constant(2.0)});
  expect_error<InvalidArgumentError>([&] { static_cast<void>(two.numpy()); },
                                     "expected one component where a tensor is expected, got 2");
}

TEST(Shape, IsAList) {
  const Shape shape{2, 3};
  EXPECT_EQ(shape.as_list().size(), 2u);
  EXPECT_EQ(shape.as_list()[1], 3);
}

TEST(Optimizer, ClearsGradientsWhateverBecomesOfTheirMemory) {
  for (const bool set_to_none : {false, true}) {
    Variable w(ones({2}));
    optimizers::SGD optimizer({w}, 0.5);
    reduce_sum(w * 3.0).backward();
    ASSERT_TRUE(w.grad().defined());
    optimizer.zero_grad(set_to_none);
    EXPECT_FALSE(w.grad().defined());
    reduce_sum(w * 3.0).backward();
    optimizer.step();
    EXPECT_EQ(values_of(w.value()), (std::vector<double>{-0.5, -0.5}));
  }
}

TEST(GradientTape, IsPersistentByItsFirstArgument) {
  const Variable w(constant(3.0f));
  GradientTape tape(true);
  const Tensor y = w * w;
  for (int i = 0; i < 2; ++i) EXPECT_EQ(tape.gradient(y, w).item(), 6.0);
}

TEST(Save, TakesTheFileFirst) {
  const testing::TemporaryDirectory directory;
  save(directory / "x.bin", constant({1.0f, 2.0f}));
  Tensor x;
  load(x, directory / "x.bin");
  EXPECT_EQ(values_of(x), (std::vector<double>{1.0, 2.0}));
  const Sequential model = linear();
  save(directory / "model.bin", model);
  EXPECT_EQ(load(directory / "model.bin").size(), 2u);
}

TEST(CudaAmp, IsThatOfTheOnlyAmp) {
  cuda::amp::GradScaler scaler;
  EXPECT_EQ(scaler.get_scale(), amp::GradScaler().get_scale());
  const cuda::amp::autocast on;
  EXPECT_TRUE(amp::is_autocast_enabled());
  const cuda::amp::autocast off(false);
  EXPECT_FALSE(amp::is_autocast_enabled());
}

TEST(NamesOfTensorFlow, AreTheSameFunctions) {
  const Tensor a = constant({7.0, -7.0, 3.0}), b = constant({2.0, 2.0, 0.0});
  expect_tensor(math::divide_no_nan(a, b), float32, {3}, {3.5, -3.5, 0});
  const Variable denominator(b);
  GradientTape tape;
  expect_tensor(tape.gradient(reduce_sum(math::divide_no_nan(a, denominator)), denominator),
                float32, {3}, {-1.75, 1.75, 0});
  expect_tensor(math::floormod(constant({7, -7}), constant({4, 4})), int32, {2}, {3, 1});
  expect_tensor(math::floormod(constant({7, -7}), 4), int32, {2}, {3, 1});
  expect_tensor(math::floordiv(constant({7, -7}), 4), int32, {2}, {1, -2});
  const Tensor matrix = constant({{1.0, 2.0}, {3.0, 4.0}});
  expect_tensor(linalg::diag_part(matrix), float32, {2}, {1, 4});
  expect_tensor(linalg::diag_part(stack({matrix, matrix * 2.0})), float32, {2, 2}, {1, 4, 2, 8});
  EXPECT_EQ(linalg::trace(matrix).item(), 5.0);
  EXPECT_THROW(throw NotFoundError("x"), errors::NotFoundError);
  set_seed(3);
  const Tensor sample = random::uniform({4});
  random::set_seed(3);
  EXPECT_EQ(values_of(random::uniform({4})), values_of(sample));
  const random::Generator generator(1);
  const Tensor rows = generator.uniform({100}, 0, 5, int64);
  EXPECT_EQ(rows.dtype(), int64);
  EXPECT_EQ(rows.max().item<int>(), 4);
}

TEST(NamesOfPyTorch, TakeTheirOtherArguments) {
  EXPECT_EQ(tensor(std::vector<std::int64_t>{1, 2}, float32).dtype(), float32);
  EXPECT_EQ(tensor({1, 2}, float32).dtype(), float32);
  const Tensor x = ones({2});
  EXPECT_EQ(x.to("/cpu:0", true).device(), x.cpu().device());
  nn::Linear fc(2, 1);
  int calls = 0;
  fc.register_forward_hook([&](nn::Module&, const Tensor&, const Tensor&) { ++calls; });
  fc(ones({1, 2}));
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace tandem::first_names_test
