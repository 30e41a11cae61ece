#include "tandem/augmentation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "nn/layer_support.h"
#include "support/gradient_check.h"
#include "support/tensors.h"
#include "tandem/tandem.h"

namespace tandem::augmentation_test {
namespace {

using namespace testing;
using namespace layers;

Tensor ramp(const Shape& shape) {
  return reshape(range(static_cast<double>(shape.num_elements())), shape);
}
std::vector<double> trained(const tandem::Layer& layer, const Tensor& x) {
  return values_of(layer(x, {.training = true}));
}

struct Case {
  const char* name;
  tandem::Layer layer;
  Shape result;  // of an image [6, 8, 3]
};
std::vector<Case> cases() {
  const Shape same{6, 8, 3};
  return {{"flip", RandomFlip(), same},
          {"rotation", RandomRotation(0.2), same},
          {"zoom", RandomZoom({-0.3, 0.2}), same},
          {"translation", RandomTranslation(0.3, {-0.1, 0.4}, {.fill_mode = "wrap"}), same},
          {"crop", RandomCrop(4, 5), {4, 5, 3}},
          {"center", CenterCrop(3, 8), {3, 8, 3}},
          {"resized crop", RandomResizedCrop(5, 7), {5, 7, 3}},
          {"resizing", Resizing(3, 4), {3, 4, 3}},
          {"brightness", RandomBrightness(0.2), same},
          {"contrast", RandomContrast(0.4), same},
          {"jitter",
           ColorJitter({.brightness = 0.2, .contrast = 0.2, .saturation = 0.3, .hue = 0.1}), same},
          {"erasing", RandomErasing(1.0, {.fill_value = 7.0}), same}};
}

TEST(Augmentation, TakesOneImageOrSeveralOfEachDtype) {
  random::set_seed(1);
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    for (const DType dtype : {uint8, float32, float64}) {
      const Tensor image = cast(random_tensor({6, 8, 3}, 3, 0.0, 255.0), dtype);
      for (const bool training : {false, true}) {
        const Tensor one = c.layer(image, {.training = training});
        EXPECT_EQ(one.dtype(), float32);
        EXPECT_EQ(one.shape(), c.result);
        const Tensor three = c.layer(stack({image, image, image}), {.training = training});
        EXPECT_EQ(three.shape(), c.result.with_leading(3));
        for (const double value : values_of(three)) EXPECT_TRUE(std::isfinite(value));
      }
    }
    Shape batch = Shape{6, 8, 3}.with_leading(-1);
    EXPECT_EQ(infer(c.layer, batch), c.result.with_leading(-1));
    expect_error<InvalidArgumentError>(
        [&] {
          c.layer(ones({2, 3}));
        },
        "expected images of shape (height, width, channels) or");
  }
}

TEST(Augmentation, GivesHalfPrecisionUnderMixedPolicies) {
  const Tensor image = cast(random_tensor({2, 6, 8, 3}, 3, 0.0, 255.0), uint8);
  mixed_precision::set_global_policy("mixed_float16");
  const std::vector<Case> half = cases();
  mixed_precision::set_global_policy("float32");
  for (const Case& c : half) {
    SCOPED_TRACE(c.name);
    random::set_seed(1);
    const Tensor y = c.layer(image, {.training = true});
    EXPECT_EQ(y.dtype(), float16);
    for (const double value : values_of(y)) EXPECT_TRUE(value >= -1.0 && value <= 256.0);
  }
}

TEST(Augmentation, IsRandomInTrainingAloneAndForEachImage) {
  const Tensor image = random_tensor({1, 6, 8, 3}, 3, 0.0, 255.0, float32);
  const Tensor images = tile(image, {40, 1, 1, 1});
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    const std::string name = c.name;
    const Tensor outside = c.layer(images);
    if (c.result == (Shape{6, 8, 3})) {
      EXPECT_EQ(values_of(outside), values_of(images));
    }
    random::set_seed(5);
    const std::vector<double> first = trained(c.layer, images);
    random::set_seed(5);
    EXPECT_EQ(trained(c.layer, images), first);
    if (name == "center" || name == "resizing") continue;
    if (name == "crop") {
      std::set<std::vector<double>> seen;
      for (int i = 0; i < 20; ++i) seen.insert(trained(c.layer, images));
      EXPECT_GT(seen.size(), 5u);
      continue;
    }
    const std::size_t size = first.size() / 40;
    std::set<std::vector<double>> seen;
    for (std::size_t i = 0; i < 40; ++i)
      seen.emplace(first.begin() + static_cast<std::ptrdiff_t>(i * size),
                   first.begin() + static_cast<std::ptrdiff_t>((i + 1) * size));
    EXPECT_GE(seen.size(), name == "flip" ? 4u : 20u);
  }
}

TEST(Augmentation, RunsInTracedFunctionsWithTheSameNumbers) {
  const Tensor images = random_tensor({3, 6, 8, 3}, 3, 0.0, 255.0, float32);
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    const auto traced = function([&](const Tensor& x) { return c.layer(x, {.training = true}); });
    static_cast<void>(traced(images));
    random::set_seed(9);
    const std::vector<double> eager = trained(c.layer, images);
    random::set_seed(9);
    const std::vector<double> graph = values_of(traced(images));
    ASSERT_EQ(graph.size(), eager.size());
    for (std::size_t i = 0; i < eager.size(); ++i) EXPECT_NEAR(graph[i], eager[i], 1e-3);
  }
}

TEST(Augmentation, DependsOnThePositionInMapsSoThatItResumes) {
  const data::Dataset images =
      data::Dataset::from_tensor_slices(random_tensor({10, 6, 8, 3}, 3, 0.0, 255.0, float32));
  for (const Case& c : cases()) {
    SCOPED_TRACE(c.name);
    const auto elements = [&](const data::Dataset& dataset, data::IterateOptions from) {
      std::vector<std::vector<double>> all;
      for (const data::Example& e : dataset.iterate(from)) all.push_back(values_of(e[0]));
      return all;
    };
    const auto mapped = [&](const data::Dataset& dataset, int calls) {
      return dataset.map([layer = c.layer](Tensor x) { return layer(x, {.training = true}); },
                         calls);
    };
    const auto all = elements(mapped(images, 1), {});
    EXPECT_EQ(elements(mapped(images, 3), {}), all);
    const auto rest = elements(mapped(images, 2), {.skip = 6});
    EXPECT_EQ(rest, (std::vector<std::vector<double>>{all.begin() + 6, all.end()}));
    const std::string name = c.name;
    if (name == "center" || name == "resizing") continue;
    EXPECT_NE(elements(mapped(images, 1), {.epoch = 1}), all);
    // The same image on another shard has other random numbers.
    const data::Dataset same = data::Dataset::from_tensor_slices(
        tile(random_tensor({1, 6, 8, 3}, 3, 0.0, 255.0, float32), {12, 1, 1, 1}));
    EXPECT_NE(elements(mapped(same.shard(2, 0), 1), {}), elements(mapped(same.shard(2, 1), 1), {}));
  }
}

TEST(Augmentation, TrainsInMirroredModels) {
  config::set_logical_cpus(2);
  distribute::MirroredStrategy strategy({.devices = {"/cpu:0", "/cpu:1"}});
  const auto scope = strategy.scope();
  Sequential model({RandomFlip("horizontal"), RandomRotation(0.1), RandomCrop(5, 5),
                    Rescaling(1.0 / 255), Flatten(), Dense(2)});
  model.compile({.optimizer = "sgd", .loss = "mse"});
  const Tensor x = random_tensor({9, 6, 8, 3}, 3, 0.0, 255.0, float32);
  const History history = model.fit(x, zeros({9, 2}), {.epochs = 3, .batch_size = 5, .verbose = 0});
  EXPECT_LT(history.at("loss")[2], history.at("loss")[0]);
  // Predictions have no randomness.
  EXPECT_EQ(values_of(model.predict(x)), values_of(model.predict(x)));
}

TEST(Augmentation, HasGradients) {
  const Tensor x = random_tensor({1, 4, 5, 3}, 2, 50.0, 200.0);
  for (const tandem::Layer& layer :
       {tandem::Layer(RandomRotation({0.1, 0.1}, {.dtype = "float64"})),
        tandem::Layer(RandomZoom({0.2, 0.2}, {.fill_mode = "constant", .dtype = "float64"})),
        tandem::Layer(Resizing(3, 7, {.dtype = "float64"})),
        tandem::Layer(RandomContrast({-0.0, 0.0}, {.dtype = "float64"}))})
    expect_gradients(
        [&](const std::vector<Tensor>& in) { return layer(in[0], {.training = true}); }, {x});
}

TEST(RandomFlip, ReversesRowsOrColumns) {
  const Tensor x = ramp({1, 2, 2, 1});
  const auto seen = [&](const char* mode) {
    const RandomFlip layer(mode);
    std::set<std::vector<double>> all;
    for (int i = 0; i < 60; ++i) all.insert(trained(layer, x));
    return all;
  };
  using All = std::set<std::vector<double>>;
  EXPECT_EQ(seen("horizontal"), (All{{0, 1, 2, 3}, {1, 0, 3, 2}}));
  EXPECT_EQ(seen("vertical"), (All{{0, 1, 2, 3}, {2, 3, 0, 1}}));
  EXPECT_EQ(seen("horizontal_and_vertical"),
            (All{{0, 1, 2, 3}, {1, 0, 3, 2}, {2, 3, 0, 1}, {3, 2, 1, 0}}));
  expect_error<InvalidArgumentError>([] { RandomFlip("left"); },
                                     "[random_flip] expected 'horizontal', 'vertical' or");
}

TEST(RandomRotation, TurnsByTheAngle) {
  const Tensor x = ramp({3, 3, 1});
  expect_tensor(RandomRotation({0.25, 0.25})(x, true), float32, {3, 3, 1},
                {2, 5, 8, 1, 4, 7, 0, 3, 6},
                1e-5);  // counter-clockwise
  expect_tensor(RandomRotation({0.5, 0.5})(x, true), float32, {3, 3, 1},
                {8, 7, 6, 5, 4, 3, 2, 1, 0}, 1e-5);
  // keras.layers.RandomRotation((.1, .1), fill_mode='constant', fill_value=9)(x, training=True)
  expect_tensor(
      RandomRotation({0.1, 0.1}, {.fill_mode = "constant", .fill_value = 9.0})(x, true), float32,
      {3, 3, 1},
      {4.0409713, 2.1607342, 6.1868696, 1.4276273, 4, 6.572373, 5.781153, 5.839266, 7.9270506},
      1e-5);
  expect_tensor(
      RandomRotation({0.1, 0.1})(x, true), float32, {3, 3, 1},
      {0.77876824, 2.1607342, 4.3363047, 1.4276273, 4, 6.572373, 3.663695, 5.839266, 7.2212315},
      1e-5);
  expect_error<InvalidArgumentError>(
      [] { RandomRotation(1.5); },
      "[random_rotation] expected factors that increase within [-1, 1]");
}

TEST(RandomTranslation, FillsAsTheModeSays) {
  const Tensor x = constant({1.0, 2.0, 3.0, 4.0}, {.shape = {1, 4, 1}});
  const auto moved = [&](const char* mode, double by) {
    return trained(RandomTranslation(0.0, {by, by}, {.fill_mode = mode, .fill_value = 9.0}), x);
  };
  using Values = std::vector<double>;
  EXPECT_EQ(moved("reflect", 0.5), (Values{2, 1, 1, 2}));
  EXPECT_EQ(moved("wrap", 0.5), (Values{3, 4, 1, 2}));
  EXPECT_EQ(moved("nearest", 0.5), (Values{1, 1, 1, 2}));
  EXPECT_EQ(moved("constant", 0.5), (Values{9, 9, 1, 2}));
  EXPECT_EQ(moved("reflect", -0.75), (Values{4, 4, 3, 2}));
  EXPECT_EQ(moved("nearest", 0.125), (Values{1, 1.5, 2.5, 3.5}));  // between pixels
  EXPECT_EQ(moved("constant", 0.125), (Values{5, 1.5, 2.5, 3.5}));
  const Values expected{2.2, 3.2, 4, 3.8}, reflected = moved("reflect", -0.3);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_NEAR(reflected[i], expected[i], 1e-5);
  expect_error<InvalidArgumentError>([] { RandomTranslation(0.1, 0.1, {.fill_mode = "mirror"}); },
                                     "[random_translation] expected fill_mode 'reflect', 'wrap'");
  expect_error<InvalidArgumentError>(
      [] { RandomZoom(0.1, {.interpolation = "cubic"}); },
      "[random_zoom] expected interpolation 'bilinear' or 'nearest'");
}

TEST(RandomZoom, ShrinksForPositiveFactors) {
  const Tensor x = ramp({1, 4, 1});
  const auto zoomed = [&](double by) {
    return trained(RandomZoom({0.0, 0.0}, {.width_factor = FactorRange(by, by),
                                           .fill_mode = "constant",
                                           .fill_value = -1.0}),
                   x);
  };
  EXPECT_EQ(zoomed(1.0), (std::vector<double>{-1, 0.5, 2.5, -1}));
  EXPECT_EQ(zoomed(-0.5), (std::vector<double>{0.75, 1.25, 1.75, 2.25}));
}

TEST(Cropping, TakesPartsAndResizesSmallImages) {
  const Tensor x = ramp({4, 4, 1});
  expect_tensor(CenterCrop(2, 2)(x), float32, {2, 2, 1}, {5, 6, 9, 10});
  EXPECT_EQ(values_of(RandomCrop(4, 4)(x, true)), values_of(x));
  std::set<double> corners;
  const RandomCrop crop(3, 3);
  for (int i = 0; i < 60; ++i) corners.insert(trained(crop, x)[0]);
  EXPECT_EQ(corners, (std::set<double>{0, 1, 4, 5}));
  // Outside of training the largest middle part of the aspect ratio, resized.
  expect_tensor(RandomCrop(1, 2)(ramp({2, 8, 1})), float32, {1, 2, 1}, {6.5, 8.5});
  expect_tensor(Resizing(2, 2)(x), float32, {2, 2, 1}, {2.5, 4.5, 10.5, 12.5});
  expect_tensor(Resizing(2, 2, {.interpolation = "nearest"})(x), float32, {2, 2, 1},
                {5, 7, 13, 15});
  expect_tensor(Resizing(1, 1, {.crop_to_aspect_ratio = true})(ramp({1, 3, 1})), float32, {1, 1, 1},
                {1});
  expect_tensor(Resizing(3, 3, {.pad_to_aspect_ratio = true, .fill_value = 9.0})(ramp({1, 3, 1})),
                float32, {3, 3, 1}, {9, 9, 9, 0, 1, 2, 9, 9, 9});
  expect_error<InvalidArgumentError>([] { RandomCrop(0, 3); },
                                     "[random_crop] expected a height and a width of at least 1");
}

TEST(RandomResizedCrop, TakesPartsOfTheAreaAndTheAspectRatio) {
  const Tensor x = tile(reshape(ramp({1, 32, 32, 1}), {1, 32, 32, 1}), {200, 1, 1, 1});
  random::set_seed(3);
  // The first and the last pixel tell the box: rows and columns of their cells' centres.
  const RandomResizedCrop layer(
      32, 32, {.scale = {0.25, 0.5}, .ratio = {0.5, 2.0}, .interpolation = "nearest"});
  const std::vector<double> values = trained(layer, x);
  double smallest = 1.0, largest = 0.0;
  for (std::size_t i = 0; i < 200; ++i) {
    const double first = values[i * 1024], last = values[i * 1024 + 1023];
    const double rows = std::floor(last / 32) - std::floor(first / 32) + 1;
    const double columns = std::fmod(last, 32) - std::fmod(first, 32) + 1;
    const double area = rows * columns / 1024;
    smallest = std::min(smallest, area);
    largest = std::max(largest, area);
    EXPECT_GE(columns / rows, 0.45);
    EXPECT_LE(columns / rows, 2.2);
  }
  EXPECT_NEAR(smallest, 0.25, 0.03);
  EXPECT_NEAR(largest, 0.5, 0.03);
  // A box of the whole image is the image.
  const RandomResizedCrop whole(4, 4, {.scale = {1, 1}, .ratio = {1, 1}});
  EXPECT_EQ(trained(whole, ramp({4, 4, 1})), values_of(ramp({4, 4, 1})));
  // No box of this aspect ratio fits: the middle.
  const RandomResizedCrop middle(1, 1, {.scale = {1, 1}, .ratio = {1, 1}});
  EXPECT_EQ(trained(middle, ramp({1, 3, 1})), (std::vector<double>{1}));
  expect_error<InvalidArgumentError>(
      [] {
        RandomResizedCrop(2, 2, {.scale = {0, 1}});
      },
      "[random_resized_crop] expected a scale of positive limits");
}

TEST(Colours, ChangeAsTheFactorsSay) {
  const Tensor x = constant({0.0, 100.0, 200.0, 50.0}, {.shape = {2, 2, 1}});
  expect_tensor(RandomBrightness({0.2, 0.2})(x, true), float32, {2, 2, 1}, {51, 151, 251, 101},
                1e-5);
  expect_tensor(RandomBrightness({0.3, 0.3})(x, true), float32, {2, 2, 1},
                {76.5, 176.5, 255, 126.5}, 1e-5);
  expect_tensor(RandomContrast({-0.0, 1.0})(x * 0.0 + 8.0, true), float32, {2, 2, 1}, {8, 8, 8, 8},
                1e-5);
  // The mean is 87.5; a factor of 1/2.
  const RandomContrast half({0.5, 0.0});
  const std::vector<double> values = trained(half, x);
  EXPECT_GE(values[0], 0.0);
  EXPECT_LE(values[0], 43.75 + 1e-3);
  EXPECT_NEAR((values[1] - 87.5) / 12.5, (values[3] - 87.5) / -37.5, 1e-4);
  expect_error<InvalidArgumentError>([] { RandomBrightness(1.5); },
                                     "[random_brightness] expected a factor that increases");
  expect_error<InvalidArgumentError>(
      [] {
        RandomContrast({1.5, 2});
      },
      "[random_contrast] expected a lower limit in [0, 1]");
  expect_error<InvalidArgumentError>([] { ColorJitter({.hue = 0.6}); },
                                     "[color_jitter] expected a hue of [0, 0.5], got 0.6");
  expect_error<InvalidArgumentError>(
      [] {
        ColorJitter()(ones({2, 2, 1}));
      },
      "[color_jitter] expected images of 3 channels");
}

TEST(ColorJitter, TurnsTheHueAndKeepsGrey) {
  const Tensor grey = full({4, 4, 3}, 90.0),
               red = constant({200.0, 40.0, 40.0}, {.shape = {1, 1, 3}});
  const ColorJitter hue({.hue = 0.5}), saturation({.saturation = 1.0}),
      brightness({.brightness = 0.5});
  for (int i = 0; i < 20; ++i) {
    for (const double value : trained(hue, grey)) EXPECT_NEAR(value, 90.0, 1e-3);
    const std::vector<double> turned = trained(hue, red);
    EXPECT_NEAR(*std::max_element(turned.begin(), turned.end()), 200.0, 1e-2);
    EXPECT_NEAR(*std::min_element(turned.begin(), turned.end()), 40.0, 1e-2);
    for (const double value : trained(saturation, grey)) EXPECT_NEAR(value, 90.0, 0.05);
    const double bright = trained(brightness, grey)[0];
    EXPECT_GE(bright, 45.0 - 1e-3);
    EXPECT_LE(bright, 135.0 + 1e-3);
  }
}

TEST(RandomErasing, ReplacesARectangle) {
  const Tensor x = ones({50, 20, 20, 1});
  random::set_seed(2);
  const RandomErasing always({1.0, 1.0}, {.scale = {0.25, 0.25}, .fill_value = 9.0});
  const std::vector<double> values = trained(always, x);
  for (std::size_t i = 0; i < 50; ++i) {
    double erased = 0;
    for (std::size_t k = 0; k < 400; ++k) erased += values[i * 400 + k] == 9.0;
    EXPECT_GE(erased, 81.0);  // half of each side
    EXPECT_LE(erased, 121.0);
  }
  EXPECT_EQ(trained(RandomErasing({0.0, 0.0}), x), values_of(x));
  for (const double value : trained(RandomErasing({1.0, 1.0}), x))
    EXPECT_TRUE(value >= 0.0 && value <= 255.0);
  expect_error<InvalidArgumentError>(
      [] {
        RandomErasing({0.0, 2.0});
      },
      "[random_erasing] expected a factor that increases within [0, 1]");
}

TEST(MixUp, MixesImagesAndLabelsAlike) {
  random::set_seed(4);
  const Tensor labels = one_hot(range(64), 64), images = reshape(labels, {64, 8, 8, 1});
  for (const double alpha : {0.2, 1.0, 3.0}) {
    const auto [x, y] = MixUp(alpha)(images, labels);
    EXPECT_EQ(values_of(reshape(x, {64, 64})), values_of(y));
    const std::vector<double> sums = values_of(reduce_sum(y, {.axis = {1}}));
    for (const double sum : sums) EXPECT_NEAR(sum, 1.0, 1e-5);
  }
  const data::Example batch = MixUp()(data::Example{images, labels});
  EXPECT_EQ(batch.size(), 2u);
  expect_error<DTypeError>(
      [&] { MixUp()(images, range(64)); },
      "[MixUp] expected labels as floating-point vectors of classes, got int32");
  expect_error<ShapeError>([&] { MixUp()(images[0], labels); }, "[MixUp] expected images [batch");
  expect_error<ShapeError>(
      [&] {
        CutMix()(images, ones({3, 2}));
      },
      "[CutMix] expected a label for each image");
  expect_error<InvalidArgumentError>(
      [&] { MixUp()(data::Example{images}); },
      "[MixUp] expected a batch of images and labels, got 1 components");
  expect_error<InvalidArgumentError>([] { MixUp(0.0); },
                                     "[MixUp] expected a positive alpha, got 0");
}

// Beta(a, a) has the variance 1 / (4 (2 a + 1)).
TEST(MixUp, HasWeightsOfTheBetaDistribution) {
  random::set_seed(6);
  constexpr std::int64_t kCount = 20'000;
  // An image that is mixed with one of the other label tells its weight.
  const Tensor images = zeros({kCount, 1, 1, 1});
  const Tensor labels = concat({ones({kCount / 2, 1}), zeros({kCount / 2, 1})}, 0);
  for (const double alpha : {0.1, 0.2, 1.0, 2.5, 10.0}) {
    const auto [mixed, label] = MixUp(alpha)(images, labels);
    double mean = 0, square = 0;
    for (const double value : values_of(label)) {
      mean += value / kCount;
      square += (value - 0.5) * (value - 0.5) / kCount;
    }
    EXPECT_NEAR(mean, 0.5, 0.01) << alpha;
    // Half of the images are mixed with one of their own label.
    EXPECT_NEAR(square, 0.125 + 0.125 / (2 * alpha + 1), 0.004) << alpha;
  }
}

TEST(CutMix, MixesLabelsByTheArea) {
  random::set_seed(8);
  const Tensor labels = one_hot(range(20), 20);
  const Tensor images = broadcast_to(reshape(labels, {20, 1, 1, 20}), {20, 40, 40, 20});
  const auto [x, y] = CutMix(1.0)(images, labels);
  const std::vector<double> areas = values_of(reduce_mean(x, {.axis = {1, 2}}));
  const std::vector<double> parts = values_of(y);
  for (std::size_t i = 0; i < areas.size(); ++i) EXPECT_NEAR(areas[i], parts[i], 0.06);
  const auto batches =
      data::Dataset::from_tensor_slices({images, labels}).batch(5).map(CutMix(0.5));
  EXPECT_EQ(batches.size(), 4);
  for (const auto& [image, label] : batches) EXPECT_EQ(image.shape(), (Shape{5, 40, 40, 20}));
}

}  // namespace
}  // namespace tandem::augmentation_test
