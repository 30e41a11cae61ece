// Layers of users with Keras's signatures, and weights as lists and by name.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <thread>
#include <vector>

#include "nn/layer_support.h"
#include "support/tensors.h"
#include "tandem/array.h"
#include "tandem/autodiff.h"
#include "tandem/creation.h"
#include "tandem/layers.h"
#include "tandem/math.h"
#include "tandem/random.h"

namespace tandem::own_layers_test {
namespace {

using testing::expect_error;
using testing::expect_tensor;
using testing::infer;
using testing::names_of;
using testing::values_of;

class Linear : public layers::Layer {
 public:
  explicit Linear(std::int64_t units) : units_(units) {}
  void build(const Shape& input_shape) override {
    ++builds;
    w_ = add_weight({.shape = {input_shape[-1], units_}, .initializer = "ones", .name = "w"});
    b_ = add_weight({.shape = {units_}, .initializer = "zeros", .trainable = false});
  }
  Tensor call(const Tensor& inputs) override { return matmul(inputs, w_) + b_; }
  int builds = 0;

 private:
  std::int64_t units_;
  Variable w_, b_;
};

TEST(OwnLayer, IsCalledItself) {
  Linear layer(4);
  EXPECT_TRUE(layer.weights().empty());
  EXPECT_EQ(layer(ones({2, 3})).shape(), Shape({2, 4}));
  EXPECT_EQ(names_of(layer.weights()), (std::vector<std::string>{"linear/w", "linear/weight_1"}));
  EXPECT_EQ(layer.trainable_weights().size(), 1u);
  EXPECT_EQ(layer.kind(), "linear");
  layer(ones({5, 3}));
  EXPECT_EQ(layer.builds, 1);
}

TEST(OwnLayer, IsBuiltOnceByThreadsThatCallItFirst) {
  Linear layer(4);
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&] { right += layer(ones({2, 3})).to_vector<float>()[0] == 3.0f; });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 8);
  EXPECT_EQ(layer.builds, 1);
  EXPECT_EQ(layer.weights().size(), 2u);
}

// It would wait for itself.
TEST(OwnLayer, ABuildThatCallsTheLayerIsAnError) {
  class OfItself : public layers::Layer {
   public:
    void build(const Shape& input_shape) override {
      if (calls_itself) (*this)(ones({1, input_shape[-1]}));
    }
    Tensor call(const Tensor& inputs) override { return inputs * 2.0; }
    bool calls_itself = true;
  };
  OfItself layer;
  for (int i = 0; i < 2; ++i)
    expect_error<FailedPreconditionError>(
        [&] {
          layer(ones({2, 3}));
        },
        "build() calls the layer that it builds");
  layer.calls_itself = false;
  EXPECT_EQ(layer(ones({1})).to_vector<float>(), std::vector<float>{2.0f});
}

TEST(OwnLayer, IsALayerByValueAndByPointer) {
  const Layer stack = layers::Stack({Linear(3), layers::ReLU(), std::make_shared<Linear>(1)});
  EXPECT_EQ(stack(ones({2, 2})).shape(), Shape({2, 1}));
  EXPECT_EQ(names_of(stack.trainable_variables()),
            (std::vector<std::string>{"linear/w", "linear_1/w"}));
  EXPECT_EQ(infer(stack, {-1, 2}), Shape({-1, 1}));
}

TEST(OwnLayer, CopiesShareVariablesWhicheverIsBuiltFirst) {
  Linear first(4);
  const Layer second = first;  // a copy, before either is built
  second(ones({2, 3}));
  EXPECT_EQ(first.builds, 0);
  EXPECT_EQ(first.weights().size(), 2u);
  Variable(first.weights()[0]).assign(full({3, 4}, 2.0));
  EXPECT_EQ(values_of(first(ones({1, 3})))[0], 6.0);
  EXPECT_EQ(first.builds, 1);
  EXPECT_TRUE(first.weights()[0] == second.variables()[0]);
  const Layer third = first;  // a copy of a built layer
  EXPECT_EQ(values_of(third(ones({1, 3})))[0], 6.0);
  second.set_trainable(false);
  EXPECT_FALSE(first.trainable());
  const Layer twice = layers::Stack({Linear(3), first});
  EXPECT_EQ(layers::Stack({second, third}).variables().size(), 2u);
}

TEST(OwnLayer, ACopyThatBuildsAnotherVariableThrows) {
  class Fickle : public layers::Layer {
   public:
    void build(const Shape& shape) override {
      w = add_weight({.shape = {shape[-1]}, .initializer = "ones"});
    }
    Tensor call(const Tensor& x) override { return x * w; }
    Variable w;
  };
  Fickle first;
  const Layer second = first;
  second(ones({1, 3}));
  expect_error<FailedPreconditionError>(
      [&] {
        first.ensure_built(std::vector{Shape{-1, 5}});
      },
      "copies of a layer share their variables");
}

class Block : public layers::Layer {
 public:
  explicit Block(std::int64_t units) : wide_(units, "relu"), narrow_(1), drop_(0.5) {}
  Tensor call(const Tensor& x, bool training) override {
    modes.push_back(training);
    return narrow_(drop_(wide_(x)));
  }
  std::vector<bool> modes;

 private:
  layers::Dense wide_, narrow_;
  layers::Dropout drop_;
};

TEST(OwnLayer, LayersThatItCallsAreItsChildren) {
  const Layer layer = Block(4);
  layer.base().ensure_built(std::vector{Shape{-1, 3}});
  EXPECT_EQ(
      names_of(layer.variables()),
      (std::vector<std::string>{"dense/kernel", "dense/bias", "dense_1/kernel", "dense_1/bias"}));
  EXPECT_EQ(layer.base().children().size(), 3u);
  layer.set_trainable(false);
  EXPECT_TRUE(layer.trainable_variables().empty());
}

TEST(OwnLayer, ChildrenHaveThePathOfTheirParentAndItsMode) {
  auto block = std::make_shared<Block>(40);
  const Layer stack = layers::Stack({block, layers::Dense(2)});
  stack(ones({2, 3}), true);
  EXPECT_EQ(names_of(stack.variables())[0], "block/dense/kernel");
  EXPECT_TRUE(block->modes.back());
  stack(ones({2, 3}));
  EXPECT_FALSE(block->modes.back());
}

TEST(OwnLayer, OwnLayersAsMembersAreChildren) {
  class Pair : public layers::Layer {
   public:
    Tensor call(const Tensor& x) override { return second_(first_(x)); }

   private:
    Linear first_{3}, second_{2};
  };
  std::vector<Layer> kept;
  {
    Pair pair;
    pair(ones({1, 4}));
    kept.push_back(pair);
  }  // the object whose members were called is gone
  EXPECT_EQ(kept[0].trainable_variables().size(), 2u);
  EXPECT_EQ(names_of(kept[0].trainable_variables())[1], "linear_1/w");
  EXPECT_EQ(kept[0](ones({1, 4})).shape(), Shape({1, 2}));
}

TEST(OwnLayer, ALayerThatIsUsedLateThrowsBecauseItWouldNotBeTrained) {
  class Late : public layers::Layer {
   public:
    Tensor call(const Tensor& x, bool training) override { return training ? late_(x) : x; }

   private:
    layers::Dense late_{3};
  };
  const Layer layer = Late();
  layer(ones({1, 3}));
  expect_error<FailedPreconditionError>(
      [&] {
        layer(ones({1, 3}), true);
      },
      "uses the layer 'dense' for the first time");
}

TEST(OwnLayer, TakesIntegersAndSeveralInputs) {
  class Lookup : public layers::Layer {
   public:
    Tensor call(const Tensor& x) override { return table_(x); }

   private:
    layers::Embedding table_{10, 3};
  };
  const Layer lookup = Lookup();
  EXPECT_EQ(infer(lookup, {-1, 4}), Shape({-1, 4, 3}));
  class Sum : public layers::Layer {
   public:
    Tensor call(const std::vector<Tensor>& inputs) override { return inputs[0] + inputs[1]; }
  };
  Sum sum;
  EXPECT_EQ(values_of(sum({ones({2}), ones({2})}))[0], 2.0);
  expect_error<UnimplementedError>([&] { sum(ones({2})); }, "overrides");
}

// Sizes of results are expressions of the unknown ones, whatever the known ones are.
TEST(OwnLayer, ShapesFollowUnknownSizes) {
  class Halves : public layers::Layer {
   public:
    Tensor call(const Tensor& x) override { return x.slice(0, 0, x.dim(0) / 2); }
  };
  class Shifted : public layers::Layer {
   public:
    Tensor call(const Tensor& x) override { return concat({x, ones({3, 13})}, 0) * 2.0; }
  };
  EXPECT_EQ(infer(Halves(), {-1, 4}), Shape({-1, 4}));
  EXPECT_EQ(infer(Shifted(), {-1, 13}), Shape({-1, 13}));
  EXPECT_EQ(infer(Halves(), {-1, -1, 3}), Shape({-1, -1, 3}));
  EXPECT_EQ(infer(layers::Lambda([](const Tensor& x) { return reduce_sum(x, {.axis = Dims{1}}); }),
                  {-1, -1, 3}),
            Shape({-1, 3}));
  // A size that the batch does not change stays known, if it looks like a batch or not.
  EXPECT_EQ(infer(layers::Lambda([](const Tensor& x) { return transpose(x); }), {-1, 3}),
            Shape({3, -1}));
}

// No variable is made for a number that stands for an unknown size.
TEST(OwnLayer, UnknownFeaturesAreRefused) {
  class Dense : public layers::Layer {
   public:
    Tensor call(const Tensor& x) override { return dense(x); }
    layers::Dense dense{2};
  };
  Dense layer;
  EXPECT_FALSE(infer(layer, {-1, -1}).known());
  EXPECT_TRUE(layer.variables().empty());
  EXPECT_EQ(layer(ones({1, 5})).shape(), Shape({1, 2}));
}

// A call that needs the batch size as a number runs on batches of two sizes.
TEST(OwnLayer, CallsThatNeedNumbersHaveShapes) {
  class Rows : public layers::Layer {
   public:
    Tensor call(const Tensor& x) override {
      const std::int64_t rows = x.dim(0);
      return reshape(x, {rows / 2, 2, -1});
    }
  };
  EXPECT_EQ(infer(Rows(), {-1, 3}), Shape({-1, 2, 3}));
  EXPECT_FALSE(infer(Rows(), {-1, -1}).known());
}

TEST(OwnLayer, IsNamedBySymbolicCalls) {
  const Layer first = Linear(3), second = Linear(3);
  const Shape input{-1, 2};
  EXPECT_EQ(first.base().output_shape({&input, 1}), Shape({-1, 3}));
  EXPECT_EQ(second.base().output_shape({&input, 1}), Shape({-1, 3}));
  const Layer stack = layers::Stack({first, layers::Dense(2), second});
  stack(ones({1, 2}));
  EXPECT_EQ(names_of(stack.trainable_variables()).back(), "linear_1/w");
}

TEST(OwnLayer, HasNameAndDtypeOptions) {
  class Named : public layers::Layer {
   public:
    Named() : Layer("this_one") {}
    Tensor call(const Tensor& x) override { return x; }
  };
  EXPECT_EQ(Named().name(), "this_one");
}

// --- values of variables ---

TEST(Weights, AreReadAndAssignedInOrder) {
  const layers::Dense layer(2);
  layer(ones({1, 3}));
  const std::vector<Tensor> before = layer.get_weights();
  ASSERT_EQ(before.size(), 2u);
  layer.set_weights({full({3, 2}, 5.0), ones({2})});
  EXPECT_EQ(values_of(layer(ones({1, 3})))[0], 16.0);
  EXPECT_NE(values_of(before[0])[0], 5.0);
  expect_error<InvalidArgumentError>(
      [&] {
        layer.set_weights({ones({3, 2})});
      },
      "expected 2 tensors, got 1");
  expect_error<InvalidArgumentError>(
      [&] {
        layer.set_weights({zeros({3, 2}), ones({3})});
      },
      "'dense/bias'");
  EXPECT_EQ(values_of(layer.get_weights()[0])[0], 5.0);  // nothing was assigned
}

TEST(StateDict, IsStrict) {
  const layers::Dense layer(2, {.name = "a"});
  layer(ones({1, 3}));
  std::map<std::string, Tensor> state = layer.state_dict();
  EXPECT_EQ(state.size(), 2u);
  state["a/bias"] = full({2}, 7.0);
  layer.load_state_dict(state);
  EXPECT_EQ(values_of(layer.get_weights()[1])[0], 7.0);
  EXPECT_EQ(layer.named_parameters()[0].first, "a/kernel");
  state["b"] = state["a/bias"];
  state.erase("a/bias");
  expect_error<InvalidArgumentError>([&] { layer.load_state_dict(state); },
                                     "missing: 'a/bias'; unexpected: 'b'");
}

TEST(Trainable, IsAssignedAsAMember) {
  layers::Dense layer(2);
  layer(ones({1, 3}));
  layer.trainable = false;
  EXPECT_FALSE(layer.trainable);
  EXPECT_FALSE(layer.trainable());
  EXPECT_TRUE(layer.trainable_variables().empty());
  Layer other = layers::Dense(1);
  other.trainable = layer.trainable;
  EXPECT_FALSE(other.trainable);
  other = layer;
  other.trainable = true;
  EXPECT_TRUE(layer.trainable);
  const Layer moved = std::move(other);
  EXPECT_TRUE(moved.trainable());
  expect_error<FailedPreconditionError>([] { return Layer().trainable(); }, "undefined layer");
}

}  // namespace
}  // namespace tandem::own_layers_test
