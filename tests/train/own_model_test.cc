// Models of users: classes derived from td::Model.
#include <gtest/gtest.h>

#include <memory>
#include <sstream>
#include <vector>

#include "support/files.h"
#include "support/tensors.h"
#include "tandem/config.h"
#include "tandem/creation.h"
#include "tandem/ddp.h"
#include "tandem/distribute.h"
#include "tandem/math.h"
#include "tandem/model.h"
#include "tandem/random.h"

namespace tandem::own_model_test {
namespace {

using testing::expect_error;
using testing::expect_tensor;
using testing::random_tensor;
using testing::TemporaryDirectory;
using testing::values_of;

class Classifier : public Model {
 public:
  Tensor call(const Tensor& inputs, bool training) override {
    ++calls;
    return logits(dropout(hidden(inputs), training));
  }
  layers::Dense hidden{8, {.activation = "relu"}}, logits{3};
  layers::Dropout dropout{0.5};
  int calls = 0;
};

Sequential same_layers() {
  return Sequential(
      {layers::Dense(8, {.activation = "relu"}), layers::Dropout(0.5), layers::Dense(3)});
}

Tensor inputs() { return random_tensor({37, 6}, 3, -1.0, 1.0, float32); }
Tensor targets() {
  std::vector<std::int32_t> labels;
  for (int i = 0; i < 37; ++i) labels.push_back(i * 7 % 3);
  return constant(labels);
}

History train(Model& model, bool eagerly = false) {
  model.compile({.optimizer = optimizers::SGD({.learning_rate = 0.1, .momentum = 0.9}),
                 .loss = losses::SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {"accuracy"},
                 .run_eagerly = eagerly});
  return model.fit(inputs(), targets(),
                   {.epochs = 3, .batch_size = 8, .verbose = 0, .shuffle = false});
}

TEST(OwnModel, TrainsAsTheSameLayersInSequence) {
  for (bool eagerly : {false, true}) {
    random::set_seed(4);
    Sequential expected = same_layers();
    const History expected_history = train(expected, eagerly);
    random::set_seed(4);
    Classifier model;
    const History history = train(model, eagerly);
    EXPECT_EQ(history.history, expected_history.history) << eagerly;
    EXPECT_EQ(values_of(model.predict(inputs())), values_of(expected.predict(inputs())));
    EXPECT_EQ(model.evaluate(inputs(), targets()), expected.evaluate(inputs(), targets()));
    ASSERT_EQ(model.variables().size(), 4u);
    EXPECT_EQ(model.variables()[0].name(), "dense/kernel");
  }
}

TEST(OwnModel, TrainsUnderStrategiesAsOnOneDevice) {
  config::set_logical_cpus(2);
  random::set_seed(4);
  Classifier expected;
  expected.dropout = layers::Dropout(0.0);
  train(expected);
  const auto trains_equally = [&](const distribute::Strategy& strategy) {
    random::set_seed(4);
    const auto scope = strategy.scope();
    Classifier model;
    model.dropout = layers::Dropout(0.0);
    train(model);
    expect_tensor(model.predict(inputs()), float32, {37, 3}, values_of(expected.predict(inputs())),
                  1e-5);
  };
  trains_equally(distribute::MirroredStrategy({.devices = {"/cpu:0", "/cpu:1"}}));
  trains_equally(distribute::OneDeviceStrategy("/cpu:1"));
}

TEST(OwnModel, HasPolicyOfCompile) {
  Classifier model;
  model.compile({.loss = losses::SparseCategoricalCrossentropy({.from_logits = true}),
                 .dtype = "mixed_bfloat16"});
  model.fit(inputs(), targets(), {.verbose = 0});
  EXPECT_EQ(model(inputs()).dtype(), bfloat16);
  EXPECT_EQ(model.variables()[0].dtype(), float32);
}

class Block : public layers::Layer {
 public:
  Tensor call(const Tensor& inputs) override { return dense(inputs); }
  layers::Dense dense{3};
};

TEST(OwnModel, AsAPartHasThePolicyOfCompile) {
  const Classifier part;
  for (const Layer& own : {Layer(part), Layer(Block())}) {
    Sequential model({own});
    model.compile({.loss = losses::SparseCategoricalCrossentropy({.from_logits = true}),
                   .dtype = "mixed_bfloat16"});
    model.fit(inputs(), targets(), {.verbose = 0});
    EXPECT_EQ(model(inputs()).dtype(), bfloat16);
    EXPECT_EQ(model.variables()[0].dtype(), float32);
  }
}

TEST(OwnModel, IsBuiltByTheFirstCallOrByBuild) {
  Classifier model;
  EXPECT_TRUE(model.defined());
  EXPECT_FALSE(model.built());
  expect_error<FailedPreconditionError>([&] { model.variables(); }, "the model is not built");
  model.build({-1, 6});
  EXPECT_EQ(model.count_params(), 6 * 8 + 8 + 8 * 3 + 3);
  EXPECT_EQ(model.layers().size(), 3u);
  std::ostringstream summary;
  model.summary(summary);
  EXPECT_NE(summary.str().find("dense_1"), std::string::npos) << summary.str();
}

TEST(OwnModel, PassesTheModeToCall) {
  random::set_seed(1);
  Classifier model;
  const Tensor x = inputs();
  EXPECT_EQ(values_of(model(x)), values_of(model(x)));
  EXPECT_NE(values_of(model(x, true)), values_of(model(x, true)));
  model.train();
  EXPECT_NE(values_of(model(x)), values_of(model(x)));
}

TEST(OwnModel, IsFrozenAndStoppedBeforeItIsBuilt) {
  Classifier model;
  EXPECT_TRUE(model.trainable);
  model.trainable = false;
  model.stop_training = true;
  model.build({-1, 6});
  EXPECT_TRUE(model.trainable_variables().empty());
}

class Sum : public Model {
 public:
  Tensor call(const std::vector<Tensor>& inputs) override { return dense(inputs[0] + inputs[1]); }
  layers::Dense dense{1};
};

TEST(OwnModel, TakesSeveralInputs) {
  Sum model;
  model.compile({.loss = "mse"});
  const Tensor x = inputs(), y = reduce_sum(x, {.axis = {1}, .keepdims = true});
  const History history = model.fit({x, x}, y, {.epochs = 2, .verbose = 0});
  EXPECT_LT(history.at("loss")[1], history.at("loss")[0]);
  EXPECT_EQ(model({x, x}).shape(), Shape({37, 1}));
  expect_error<UnimplementedError>([&] { Sum()(x); },
                                   "[sum] the model was called with one input: expected a class "
                                   "that overrides td::Tensor call(const td::Tensor& inputs)");
}

TEST(OwnModel, IsALayerOfAnotherModel) {
  Classifier part;
  Sequential whole({layers::Dense(6), part, layers::Softmax()});
  EXPECT_EQ(whole(inputs()).shape(), Shape({37, 3}));
  EXPECT_EQ(whole.variables().size(), 6u);
  EXPECT_EQ(whole.variables()[2].name(), "classifier/dense/kernel");
  EXPECT_EQ(values_of(part.variables()[0]), values_of(whole.variables()[2]));
}

TEST(OwnModel, SavesAndLoadsWeights) {
  const TemporaryDirectory directory;
  Classifier model, other;
  const Tensor x = inputs();
  const Tensor expected = model(x);
  model.save_weights(directory / "w.safetensors");
  EXPECT_NE(values_of(other(x)), values_of(expected));
  other.load_weights(directory / "w.safetensors");
  EXPECT_EQ(values_of(other(x)), values_of(expected));
}

TEST(OwnModel, CopiesAreHandlesToTheObject) {
  Classifier model;
  const Classifier copy = model;
  const Model handle = model;
  const Tensor x = inputs();
  EXPECT_EQ(values_of(copy(x)), values_of(model(x)));
  const int calls = model.calls;
  handle(x);
  EXPECT_EQ(model.calls, calls + 1);
  EXPECT_EQ(copy.calls, 0);
}

TEST(OwnModel, IsCalledWhereItWasMovedTo) {
  const Tensor x = inputs();
  std::vector<Classifier> models;
  for (int i = 0; i < 5; ++i) {
    models.emplace_back();
    models.back()(x);
  }
  for (Classifier& model : models) {
    const int calls = model.calls;
    model(x);
    EXPECT_EQ(model.calls, calls + 1);
  }
  Classifier first = std::move(models[0]);
  EXPECT_EQ(first(x).shape(), Shape({37, 3}));
  first = std::move(models[1]);
  EXPECT_EQ(first(x).shape(), Shape({37, 3}));
}

TEST(OwnModel, IsRefusedWhenItsObjectHasEnded) {
  const Tensor x = inputs();
  Model handle;
  {
    Classifier model;
    handle = model;
    handle(x);
  }
  const char* const kMessage =
      "[classifier] the object of the class derived from td::Model has ended, or was moved into a "
      "td::Model: keep the object as long as the model is called";
  expect_error<FailedPreconditionError>([&] { handle(x); }, kMessage);
  const Model moved = Classifier();
  expect_error<FailedPreconditionError>([&] { moved(x); }, kMessage);
  Classifier overwritten;
  handle = overwritten;
  overwritten = Classifier();
  expect_error<FailedPreconditionError>([&] { handle(x); }, kMessage);
  EXPECT_EQ(overwritten(x).shape(), Shape({37, 3}));
}

class Unfinished : public Sequential {};

TEST(OwnModel, ASequentialWithoutLayersStaysUndefined) {
  EXPECT_FALSE(Unfinished().defined());
  Unfinished model;
  model.add(layers::Dense(2));
  EXPECT_EQ(model(inputs()).shape(), Shape({37, 2}));
}

}  // namespace
}  // namespace tandem::own_model_test
