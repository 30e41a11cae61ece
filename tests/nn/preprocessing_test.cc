#include "tandem/preprocessing.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>

#include "nn/layer_support.h"
#include "support/files.h"
#include "support/gradient_check.h"
#include "support/tensors.h"
#include "tandem/tandem.h"

namespace tandem::preprocessing_test {
namespace {

using namespace testing;
using layers::CategoryEncoding;
using layers::Discretization;
using layers::IntegerLookup;
using layers::Normalization;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

Tensor integers(const std::vector<std::int64_t>& values, const Shape& shape) {
  return constant(values, {.shape = shape});
}

TEST(Normalization, AdaptsToTheMeanAndVarianceOfEachColumn) {
  const Normalization layer;
  const Tensor x = constant({{1.0, 10.0}, {2.0, 30.0}, {6.0, 50.0}});
  layer.adapt(x);
  const Tensor y = layer(x);
  EXPECT_EQ(names_of(layer.variables()),
            (std::vector<std::string>{"normalization/mean", "normalization/variance"}));
  EXPECT_TRUE(layer.trainable_variables().empty());
  const double a = std::sqrt(14.0 / 3), b = std::sqrt(800.0 / 3);
  expect_tensor(y, float32, {3, 2}, {-2 / a, -20 / b, -1 / a, 0, 3 / a, 20 / b}, 1e-6);
  const Normalization back({.invert = true});
  back.adapt(x);
  expect_tensor(back(y), float32, {3, 2}, values_of(x), 1e-6);
}

TEST(Normalization, AdaptsToBatchesAsToAllExamples) {
  const Tensor x = random_tensor({11, 3, 2}, 3);
  const Normalization whole({.axis = {1, -1}}), batches({.axis = {2, 1}});
  whole.adapt(x);
  batches.adapt(data::Dataset::from_tensor_slices({x, x}).batch(4));
  expect_tensor(batches(x), float32, {11, 3, 2}, values_of(whole(x)), 1e-5);
  // Another pass replaces the moments, also of a layer that has been called.
  whole.adapt(x * 2.0 + 5.0);
  expect_tensor(whole(x * 2.0 + 5.0), float32, {11, 3, 2}, values_of(batches(x)), 1e-5);
}

TEST(Normalization, TakesOneAxisAsANumber) {
  const Normalization layer({.axis = 1}), of_list({.axis = {1}});
  const Tensor x = constant({{1.0, 3.0}, {5.0, 9.0}});
  layer.adapt(x);
  of_list.adapt(x);
  expect_tensor(layer(x), float32, {2, 2}, {-1, -1, 1, 1}, 1e-6);
  expect_tensor(of_list(x), float32, {2, 2}, {-1, -1, 1, 1}, 1e-6);
}

TEST(Normalization, HasOneMeanForAllWithoutAxes) {
  const Normalization layer({.axis = {}});
  layer.adapt(constant({{1.0, 3.0}, {5.0, 7.0}}));
  const double s = std::sqrt(5.0);
  expect_tensor(layer(constant({{4.0, 4.0 + s}})), float32, {1, 2}, {0, 1}, 1e-6);
  EXPECT_EQ(layer.variables()[0].shape(), Shape::scalar());
}

TEST(Normalization, TakesTheGivenMomentsAndNumbersOfAnyDtype) {
  const Normalization one({.mean = {2}, .variance = {4}}),
      each({.mean = {1, 2}, .variance = {4, 0}});
  EXPECT_TRUE(one.variables().empty());
  for (const DType dtype : {uint8, int32, int64, float16, bfloat16, float32})
    expect_tensor(one(constant({{4, 0}}, dtype)), float32, {1, 2}, {1, -1});
  expect_tensor(one(constant({{4, 0}}, float64)), float32, {1, 2}, {1, -1});
  expect_tensor(each(constant({{5.0, 2.5}})), float32, {1, 2}, {2, 0.5 / 1e-7}, 1e-6);
  // Numbers beyond float16 are normalised before they are rounded.
  const Normalization half({.mean = {100'000}, .variance = {1e8}, .dtype = "mixed_float16"});
  expect_tensor(half(constant({{120'000, 90'000}})), float16, {1, 2}, {2, -1});
}

TEST(Normalization, IsSavedWithTheWeights) {
  const TemporaryDirectory directory;
  const auto path = directory / "weights.safetensors";
  const Tensor x = random_tensor({8, 3}, 5, 0.0, 100.0, float32);
  const auto make = [](const Normalization& layer) {
    random::set_seed(1);
    return Sequential({layer, layers::Dense(2)});
  };
  const Normalization adapted({.input_shape = {3}}), fresh({.input_shape = {3}});
  adapted.adapt(x);
  Sequential model = make(adapted), other = make(fresh);
  EXPECT_EQ(names_of(model.variables())[0], "normalization/mean");
  model.save_weights(path);
  EXPECT_NE(values_of(other(x)), values_of(model(x)));
  other.load_weights(path);
  EXPECT_EQ(values_of(other(x)), values_of(model(x)));
  // Adapting again reaches functions that were traced before.
  const auto traced = function([&](const Tensor& t) { return other(t); });
  static_cast<void>(traced(x));
  fresh.adapt(x * 3.0);
  EXPECT_EQ(values_of(traced(x)), values_of(other(x)));
  EXPECT_NE(values_of(traced(x)), values_of(model(x)));
}

TEST(Normalization, IsTheSameInReplicas) {
  config::set_logical_cpus(2);
  const Tensor x = random_tensor({8, 3}, 5, 0.0, 100.0, float32), y = ones({8, 2});
  const auto losses_under = [&](const distribute::Strategy& strategy) {
    random::set_seed(1);
    const auto scope = strategy.scope();
    const Normalization layer({.input_shape = {3}});
    layer.adapt(x);
    Sequential model({layer, layers::Dense(2)});
    model.compile({.optimizer = "sgd", .loss = "mse"});
    const double first = model.evaluate(x, y).at("loss");
    layer.adapt(x * 2.0);
    return std::pair{first, model.evaluate(x, y).at("loss")};
  };
  const auto one = losses_under(distribute::OneDeviceStrategy("/cpu:0"));
  const auto two = losses_under(distribute::MirroredStrategy({.devices = {"/cpu:0", "/cpu:1"}}));
  EXPECT_NEAR(one.first, two.first, 1e-6);
  EXPECT_NEAR(one.second, two.second, 1e-6);
  EXPECT_NE(one.first, one.second);
}

TEST(Normalization, HasAGradient) {
  const Normalization layer({.mean = {1, 2}, .variance = {4, 9}, .dtype = "float64"});
  expect_gradients([&](const std::vector<Tensor>& x) { return layer(x[0]); },
                   {random_tensor({3, 2}, 4)});
}

TEST(Normalization, ErrorsSayWhatIsWrong) {
  const Normalization layer;
  expect_error<InvalidArgumentError>(
      [&] {
        layer.adapt(zeros({0, 2}));
      },
      "[normalization] expected examples to adapt to, got none");
  expect_error<InvalidArgumentError>(
      [&] {
        layer.adapt(constant({{1.0, kNaN}, {2.0, 1.0}}));
      },
      "[normalization] expected finite numbers to adapt to, got NaN or infinity at position 1 of "
      "2");
  expect_error<InvalidArgumentError>(
      [&] {
        layer.adapt(data::Dataset::from_tensor_slices(ones({4, 2})).repeat().batch(2));
      },
      "[normalization] expected finite data, got an endless dataset: use take()");
  layer.adapt(constant({{1.0, 2.0}}));
  expect_error<InvalidArgumentError>(
      [&] {
        layer(ones({2, 3}));
      },
      "[normalization] expected an input with 2 positions");
  static_cast<void>(layer(ones({2, 2})));
  expect_error<InvalidArgumentError>(
      [&] {
        layer.adapt(ones({2, 3}));
      },
      "[normalization] expected sizes (2,) of the axes");
  expect_error<InvalidArgumentError>(
      [] {
        Normalization({.axis = {0}})(ones({2, 2}));
      },
      "[normalization] expected an input with an axis 0 besides");
  expect_error<InvalidArgumentError>(
      [] {
        Normalization({.axis = {1, -1}})(ones({2, 2}));
      },
      "[normalization] expected different axes");
  expect_error<InvalidArgumentError>([] { Normalization({.mean = {1}}); },
                                     "[normalization] expected as many means as variances");
  expect_error<FailedPreconditionError>(
      [] {
        Normalization({.mean = {1}, .variance = {1}}).adapt(ones({2, 2}));
      },
      "[normalization] the options have a mean");
}

// Keras's examples, and https://keras.io/api/layers/preprocessing_layers/numerical/discretization
TEST(Discretization, NumbersTheBins) {
  const Tensor x = constant({{-1.5, 1.0, 3.4, 0.5}, {0.0, 3.0, 1.3, kNaN}});
  expect_tensor(Discretization({.bin_boundaries = {0, 1, 2}})(x), int64, {2, 4},
                {0, 2, 3, 1, 1, 3, 2, 3});
  const Discretization one({.bin_boundaries = {1}, .output_mode = "one_hot"});
  expect_tensor(one(constant({{0.5}, {1.0}})), float32, {2, 2}, {1, 0, 0, 1});
  const Discretization many({.bin_boundaries = {0, 1}, .output_mode = "count"});
  expect_tensor(many(constant({{-1, -2, 5, 1}})), float32, {1, 3}, {2, 0, 2});
  expect_tensor(Discretization({.bin_boundaries = {0, 1}, .output_mode = "multi_hot"})(
                    constant({{-1, -2, 5, 1}})),
                float32, {1, 3}, {1, 0, 1});
}

TEST(Discretization, FindsEachPlaceAmongManyBoundaries) {
  for (const std::int64_t count : {1, 2, 3, 4, 7, 8, 9, 100}) {
    std::vector<double> boundaries, numbers, expected;
    for (std::int64_t i = 0; i < count; ++i) boundaries.push_back(static_cast<double>(i));
    for (std::int64_t i = -1; i <= count; ++i)
      for (const double x : {static_cast<double>(i) - 0.25, static_cast<double>(i)}) {
        numbers.push_back(x);
        expected.push_back(std::clamp(std::floor(x) + 1.0, 0.0, static_cast<double>(count)));
      }
    numbers.insert(numbers.end(), {kInfinity, -kInfinity, kNaN});
    expected.insert(expected.end(), {static_cast<double>(count), 0.0, static_cast<double>(count)});
    const Discretization layer({.bin_boundaries = boundaries});
    for (const DType dtype : {float32, float64})
      expect_tensor(layer(constant(numbers, {.dtype = dtype})), int64, {std::ssize(numbers)},
                    expected);
  }
}

TEST(Discretization, AdaptsToQuantiles) {
  const Discretization layer({.num_bins = 4});
  const Tensor x = constant({{-1.5, 1.0, 3.4, 0.5}, {0.0, 3.0, 1.3, 0.0}});
  EXPECT_TRUE(layer.bin_boundaries().empty());
  layer.adapt(x);
  expect_tensor(layer(x), int64, {2, 4}, {0, 2, 3, 2, 1, 3, 3, 1});
  EXPECT_EQ(names_of(layer.variables()),
            (std::vector<std::string>{"discretization/bin_boundaries"}));
  EXPECT_EQ(layer.bin_boundaries(), (std::vector<double>{0.0, 0.5, 1.3f}));
  // As many numbers in each bin, also from batches.
  std::vector<double> numbers = random_values(4000, 1, 0.0, 1.0);
  for (double& number : numbers) number *= number;
  const Discretization bins({.num_bins = 8});
  bins.adapt(data::Dataset::from_tensor_slices(constant(numbers)).batch(512));
  const Tensor counts = reduce_sum(one_hot(bins(constant(numbers)), 8), {.axis = {0}});
  for (const double count : values_of(counts)) EXPECT_NEAR(count, 500.0, 60.0);
}

// python3 -c "import keras, numpy, tensorflow as tf
// x = (numpy.arange(1000)**2 % 1009 / 1009).astype('float32')
// for n, e in ((4, .01), (10, .01), (7, .05), (3, .001)):
//   d = keras.layers.Discretization(num_bins=n, epsilon=e)
//   d.adapt(tf.data.Dataset.from_tensor_slices(x).batch(128)); print(d.bin_boundaries)"
TEST(Discretization, FindsTheBoundariesOfKeras) {
  const struct {
    std::int64_t bins;
    double epsilon;
    std::vector<double> boundaries;
  } cases[] = {{4, 0.01, {0.2507922, 0.5084784, 0.7630433}},
               {10,
                0.01,
                {0.1004171, 0.2001265, 0.3017733, 0.4059294, 0.5084784, 0.610346, 0.7141026,
                 0.8156883, 0.9222915}},
               {7, 0.05, {0.1671132, 0.3174939, 0.4609963, 0.5980944, 0.7519096, 0.8911558}},
               {3, 0.001, {0.333003, 0.6712892}}};
  std::vector<float> numbers;
  for (int i = 0; i < 1000; ++i) numbers.push_back(static_cast<float>(i * i % 1009 / 1009.0));
  for (const auto& c : cases) {
    const Discretization layer({.num_bins = c.bins, .epsilon = c.epsilon});
    layer.adapt(data::Dataset::from_tensor_slices(constant(numbers)).batch(128));
    const std::vector<double> found = layer.bin_boundaries();
    ASSERT_EQ(found.size(), c.boundaries.size());
    for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], c.boundaries[i], 2e-6);
  }
}

TEST(Discretization, ErrorsSayWhatIsWrong) {
  expect_error<InvalidArgumentError>(
      [] { Discretization({}); },
      "[discretization] expected either bin_boundaries or num_bins, got none of them");
  expect_error<InvalidArgumentError>([] { Discretization({.bin_boundaries = {1}, .num_bins = 2}); },
                                     "got both");
  expect_error<InvalidArgumentError>([] { Discretization({.num_bins = 1}); },
                                     "[discretization] expected at least 2 bins, got 1");
  expect_error<InvalidArgumentError>(
      [] {
        Discretization({.bin_boundaries = {1, 1}});
      },
      "[discretization] expected boundaries that increase, got 1 at 1");
  expect_error<InvalidArgumentError>(
      [] { Discretization({.num_bins = 2, .output_mode = "tf_idf"}); },
      "[discretization] expected one of the output modes int, one_hot, multi_hot, count; got "
      "'tf_idf'");
  const Discretization layer({.num_bins = 3});
  expect_error<InvalidArgumentError>([&] { layer.adapt(constant({kNaN})); },
                                     "[discretization] expected numbers to adapt to, got NaN");
  expect_error<InvalidArgumentError>([&] { layer.adapt(zeros({0})); }, "got none");
  expect_error<FailedPreconditionError>(
      [] { Discretization({.bin_boundaries = {1}}).adapt(ones({2})); },
      "[discretization] the options have boundaries");
}

TEST(CategoryEncoding, EncodesAsKeras) {
  const CategoryEncoding one(4, {.output_mode = "one_hot"}), many(4),
      count(4, {.output_mode = "count"});
  expect_tensor(one(constant({3, 2, 0, 1})), float32, {4, 4},
                {0, 0, 0, 1, 0, 0, 1, 0, 1, 0, 0, 0, 0, 1, 0, 0});
  expect_tensor(one(constant({{3}, {1}})), float32, {2, 4}, {0, 0, 0, 1, 0, 1, 0, 0});
  EXPECT_EQ(one(constant({{3, 1}})).shape(), (Shape{1, 2, 4}));
  const Tensor pairs = constant({{0, 1}, {0, 0}, {1, 2}, {3, 1}});
  expect_tensor(many(pairs), float32, {4, 4}, {1, 1, 0, 0, 1, 0, 0, 0, 0, 1, 1, 0, 0, 1, 0, 1});
  expect_tensor(count(pairs), float32, {4, 4}, {1, 1, 0, 0, 2, 0, 0, 0, 0, 1, 1, 0, 0, 1, 0, 1});
  const Tensor weights = constant({{0.1, 0.2}, {0.1, 0.1}, {0.2, 0.3}, {0.2, 0.4}});
  expect_tensor(count({pairs, weights}), float32, {4, 4},
                {0.1, 0.2, 0, 0, 0.2, 0, 0, 0, 0, 0.2, 0.3, 0, 0, 0.4, 0, 0.2}, 1e-6);
  expect_tensor(many(constant({2, 0})), float32, {4}, {1, 0, 1, 0});  // one example
  expect_tensor(many(constant({{2.0, 0.0}})), float32, {1, 4}, {1, 0, 1, 0});
}

TEST(CategoryEncoding, RefusesOtherCategories) {
  const CategoryEncoding layer(3);
  expect_error<InvalidArgumentError>(
      [&] {
        values_of(layer(constant({{1, 3}})));
      },
      "expected indices of [0, 3), got 3");
  expect_error<InvalidArgumentError>([&] { values_of(layer(constant({{-1, 0}}))); }, "got -1");
  expect_error<InvalidArgumentError>(
      [] { CategoryEncoding(0); }, "[category_encoding] expected num_tokens of at least 1, got 0");
  expect_error<InvalidArgumentError>(
      [&] {
        layer({constant({{1}}), ones({1, 1})});
      },
      "[category_encoding] expected categories, and with the output mode 'count' perhaps weights");
  expect_error<InvalidArgumentError>(
      [] {
        CategoryEncoding(3, {.output_mode = "count"})({constant({{1}}), ones({1, 2})});
      },
      "[category_encoding] expected weights of the categories' shape (?, 1)");
  expect_error<InvalidArgumentError>(
      [] { CategoryEncoding(3, {.output_mode = "int"}); },
      "[category_encoding] expected one of the output modes one_hot");
}

TEST(IntegerLookup, GivesIndicesOfAVocabulary) {
  const IntegerLookup layer({.vocabulary = {12, 36, 1138, 42}});
  expect_tensor(layer(integers({12, 1138, 42, 42, 1000, 36}, {2, 3})), int64, {2, 3},
                {1, 3, 4, 4, 0, 2});
  expect_tensor(layer(constant({{36.0, 7.0}})), int64, {1, 2}, {2, 0});
  EXPECT_EQ(layer.vocabulary(), (std::vector<std::int64_t>{-1, 12, 36, 1138, 42}));
  EXPECT_EQ(layer.vocabulary(false), (std::vector<std::int64_t>{12, 36, 1138, 42}));
  EXPECT_EQ(layer.vocabulary_size(), 5);
  const IntegerLookup bins({.num_oov_indices = 2, .mask_token = 0, .vocabulary = {12, 36}});
  expect_tensor(bins(integers({12, 1138, 0, 37, -3}, {5})), int64, {5}, {3, 1, 0, 2, 2});
  const IntegerLookup back({.mask_token = 0, .vocabulary = {12, 36}, .invert = true});
  expect_tensor(back(integers({1, 3, 0, 2, 9, -5}, {6})), int64, {6}, {-1, 36, 0, 12, -1, -1});
}

TEST(IntegerLookup, AdaptsToTheMostFrequent) {
  const IntegerLookup layer;
  layer.adapt(integers({12, 1138, 42, 42, 1000, 36}, {2, 3}));
  EXPECT_EQ(layer.vocabulary(), (std::vector<std::int64_t>{-1, 42, 1138, 1000, 36, 12}));
  expect_tensor(layer(integers({12, 1138, 42, 42, 1000, 7}, {6})), int64, {6}, {5, 2, 1, 1, 3, 0});
  const IntegerLookup few({.max_tokens = 3, .mask_token = 42});
  few.adapt(data::Dataset::from_tensor_slices(integers({12, 7, 42, 42, 12, -1, -1}, {7})).batch(3));
  EXPECT_EQ(few.vocabulary(), (std::vector<std::int64_t>{42, -1, 12}));
}

TEST(IntegerLookup, GivesVectors) {
  const Tensor x = integers({12, 36, 12, 1000, 1, 0}, {2, 3});
  const auto mode = [](const char* name) {
    return IntegerLookup({.max_tokens = 5,
                          .mask_token = 0,
                          .vocabulary = {12, 36, 7},
                          .output_mode = name,
                          .pad_to_max_tokens = true});
  };
  expect_tensor(mode("multi_hot")(x), float32, {2, 5}, {0, 1, 1, 0, 0, 1, 0, 0, 0, 0});
  expect_tensor(mode("count")(x), float32, {2, 5}, {0, 2, 1, 0, 0, 2, 0, 0, 0, 0});
  expect_tensor(mode("one_hot")(integers({36, 0}, {2, 1})), float32, {2, 5},
                {0, 0, 1, 0, 0, 0, 0, 0, 0, 0});
  const IntegerLookup weighed(
      {.vocabulary = {12, 36}, .idf_weights = {0.5, 2}, .output_mode = "tf_idf"});
  expect_tensor(weighed(x), float32, {2, 3}, {0, 1, 2, 3.75, 0, 0});
  const IntegerLookup found({.output_mode = "tf_idf"});
  found.adapt(integers({5, 5, 6, 5}, {2, 2}));
  EXPECT_EQ(found.vocabulary(false), (std::vector<std::int64_t>{5, 6}));
  const double five = std::log(1 + 2.0 / 3), six = std::log(1 + 2.0 / 2);
  EXPECT_EQ(found.idf_weights(), (std::vector<double>{five / 2 + six / 2, five, six}));
}

TEST(IntegerLookup, RunsInTracedModelsOnItsDevice) {
  const IntegerLookup layer({.vocabulary = {5, 3, 9, 1, 4, 8}, .output_mode = "count"});
  const Tensor x = integers({9, 9, 2, 1, 5, 8}, {2, 3});
  const auto traced = function([&](const Tensor& t) { return layer(t); });
  EXPECT_EQ(values_of(traced(x)), values_of(layer(x)));
  const IntegerLookup strict({.num_oov_indices = 0, .vocabulary = {5, 3}});
  const auto refusing = function([&](const Tensor& t) { return strict(t); });
  EXPECT_EQ(values_of(refusing(integers({3, 5}, {2}))), (std::vector<double>{1, 0}));
  expect_error<InvalidArgumentError>([&] { values_of(refusing(integers({3, 4}, {2}))); }, "got -1");
  expect_error<InvalidArgumentError>(
      [&] {
        strict(integers({3, 4, 7}, {3}));
      },
      "[integer_lookup] expected integers of the vocabulary without num_oov_indices, got 4, 7; "
      "consider num_oov_indices = 1");
}

TEST(IntegerLookup, ErrorsSayWhatIsWrong) {
  expect_error<InvalidArgumentError>(
      [] {
        IntegerLookup({.vocabulary = {1, 2, 1}});
      },
      "[integer_lookup] expected a vocabulary of different terms, got '1' twice");
  expect_error<InvalidArgumentError>(
      [] {
        IntegerLookup({.mask_token = 0, .vocabulary = {1, 0}});
      },
      "[integer_lookup] expected a vocabulary without the special terms, or with all of them at "
      "its "
      "beginning, got '0' at 1");
  expect_error<InvalidArgumentError>(
      [] {
        IntegerLookup({.max_tokens = 2, .vocabulary = {1, 2}});
      },
      "[integer_lookup] expected a vocabulary of at most 2 terms, got 3");
  expect_error<InvalidArgumentError>([] { IntegerLookup({.max_tokens = 1}); },
                                     "[integer_lookup] expected max_tokens of at least 2, got 1");
  expect_error<InvalidArgumentError>([] { IntegerLookup({.num_oov_indices = -1}); },
                                     "[integer_lookup] expected num_oov_indices of at least 0");
  expect_error<InvalidArgumentError>([] { IntegerLookup({.pad_to_max_tokens = true}); },
                                     "[integer_lookup] expected max_tokens with pad_to_max_tokens");
  expect_error<InvalidArgumentError>(
      [] { IntegerLookup({.vocabulary = {1}, .output_mode = "tf_idf"}); },
      "[integer_lookup] expected idf_weights with the output mode 'tf_idf'");
  expect_error<InvalidArgumentError>(
      [] {
        IntegerLookup({.vocabulary = {1}, .idf_weights = {1, 2}, .output_mode = "tf_idf"});
      },
      "[integer_lookup] expected 1 idf_weights, as terms, got 2");
  expect_error<InvalidArgumentError>(
      [] { IntegerLookup({.invert = true, .output_mode = "count"}); },
      "[integer_lookup] expected the output mode 'int' with invert");
  const IntegerLookup empty;
  expect_error<FailedPreconditionError>([&] { empty(constant({1})); },
                                        "[integer_lookup] expected a vocabulary, got none");
  expect_error<InvalidArgumentError>([&] { empty.adapt(zeros({0}, int64)); },
                                     "[integer_lookup] expected integers to adapt to, got none");
  const IntegerLookup given({.vocabulary = {1}});
  expect_error<FailedPreconditionError>([&] { given.adapt(constant({1})); },
                                        "[integer_lookup] the option `vocabulary` is given");
  empty.adapt(constant({1}));
  static_cast<void>(empty(constant({1})));
  expect_error<FailedPreconditionError>([&] { empty.adapt(constant({1})); },
                                        "[integer_lookup] the layer has been called");
}

}  // namespace
}  // namespace tandem::preprocessing_test
