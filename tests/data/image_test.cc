// Functions on images.
#include "tandem/image.h"

#include <gtest/gtest.h>

#include <cmath>

#include "support/gradient_check.h"
#include "support/tensors.h"
#include "tandem/array.h"
#include "tandem/creation.h"
#include "tandem/function.h"
#include "tandem/math.h"
#include "tandem/random.h"

namespace tandem::image_test {
namespace {

using namespace testing;

Tensor counting(const Shape& shape, DType dtype = float32) {
  return reshape(range(Dim(shape.num_elements()), {.dtype = dtype}), shape);
}

TEST(Image, FlipsAndCrops) {
  const Tensor x = counting({2, 3, 1}, int32);
  expect_tensor(image::flip_left_right(x), int32, {2, 3, 1}, {2, 1, 0, 5, 4, 3});
  expect_tensor(image::flip_up_down(x), int32, {2, 3, 1}, {3, 4, 5, 0, 1, 2});
  expect_tensor(image::flip_up_down(reshape(x, {1, 2, 3, 1})), int32, {1, 2, 3, 1},
                {3, 4, 5, 0, 1, 2});
  expect_tensor(image::central_crop(counting({4, 4, 1}), 0.5), float32, {2, 2, 1}, {5, 6, 9, 10});
  EXPECT_EQ(image::central_crop(counting({2, 5, 5, 1}), 0.5).shape(), Shape({2, 3, 3, 1}));
  expect_error<InvalidArgumentError>([&] { static_cast<void>(image::central_crop(x, 0.0)); },
                                     "expected a fraction in (0, 1]");
  expect_error<ShapeError>(
      [] {
        static_cast<void>(image::flip_left_right(ones({2, 3})));
      },
      "[flip_left_right] expected [height, width, channels] or");
}

TEST(Image, ChoosesAtRandom) {
  random::set_seed(3);
  const Tensor x = counting({200, 1, 2, 1});
  const Tensor flipped = image::random_flip_left_right(x);
  const double share = cast(not_equal(flipped, x), float32).mean().item();
  EXPECT_NEAR(share, 0.5, 0.12);
  const Tensor both = reduce_sum(flipped, 2);
  EXPECT_EQ(values_of(both), values_of(reduce_sum(x, 2)));
  const auto crop = function([](const Tensor& in) { return image::random_crop(in, {2, 2, 1}); });
  std::vector<double> first;
  for (int i = 0; i < 60; ++i) {
    const std::vector<double> part = values_of(crop(counting({4, 3, 1})));
    EXPECT_EQ(part[1], part[0] + 1);
    EXPECT_EQ(part[2], part[0] + 3);
    first.push_back(part[0]);
  }
  EXPECT_EQ(*std::max_element(first.begin(), first.end()), 7);  // row 2, column 1
  EXPECT_EQ(*std::min_element(first.begin(), first.end()), 0);
  expect_error<InvalidArgumentError>(
      [] {
        static_cast<void>(image::random_crop(ones({2, 2, 1}), {3, 2, 1}));
      },
      "[random_crop] expected at most 2 along axis 0, got 3");
}

TEST(Image, ChangesColours) {
  const Tensor x = constant({{{1.0, 0.5, 0.0}}});
  expect_tensor(image::rgb_to_grayscale(x), float32, {1, 1, 1}, {0.2989 + 0.5 * 0.587}, 1e-6);
  expect_tensor(image::grayscale_to_rgb(ones({1, 1, 1})), float32, {1, 1, 3}, {1, 1, 1});
  expect_tensor(image::adjust_brightness(x, 0.25), float32, {1, 1, 3}, {1.25, 0.75, 0.25});
  const Tensor two = constant({{{1.0}, {3.0}}});
  expect_tensor(image::adjust_contrast(two, 2.0), float32, {1, 2, 1}, {0, 4});
  expect_tensor(image::per_image_standardization(two), float32, {1, 2, 1}, {-1, 1}, 1e-6);
  expect_tensor(image::per_image_standardization(ones({1, 2, 1})), float32, {1, 2, 1}, {0, 0});
  expect_error<DTypeError>(
      [] {
        static_cast<void>(image::rgb_to_grayscale(ones({1, 1, 3}, uint8)));
      },
      "expected floating-point images, got uint8: convert_image_dtype()");
  expect_tensor(image::convert_image_dtype(constant({0, 51, 255}, uint8), float32), float32, {3},
                {0, 0.2, 1}, 1e-6);
  expect_tensor(image::convert_image_dtype(constant({-1.0, 0.2, 1.5}), uint8), uint8, {3},
                {0, 51, 255});
}

TEST(Image, IsResized) {
  const Tensor x = constant({{{0.0}, {10.0}}});  // a row of two pixels
  expect_tensor(image::resize(x, {1, 4}), float32, {1, 4, 1}, {0, 2.5, 7.5, 10}, 1e-6);
  expect_tensor(image::resize(x, {2, 1}), float32, {2, 1, 1}, {5, 5}, 1e-6);
  expect_tensor(image::resize(counting({1, 2, 2, 1}, int32), {4, 4}, {.method = "nearest"}), int32,
                {1, 4, 4, 1}, {0, 0, 1, 1, 0, 0, 1, 1, 2, 2, 3, 3, 2, 2, 3, 3});
  expect_gradients(
      [](const std::vector<Tensor>& in) {
        return image::resize(in[0], {3, 5});
      },
      {random_tensor({2, 2, 3, 2})});
  const auto traced = function([](const Tensor& in) { return image::resize(in, {3, 5}); });
  const Tensor batch = random_tensor({2, 2, 3, 2});
  EXPECT_EQ(values_of(traced(batch)), values_of(image::resize(batch, {3, 5})));
  expect_error<InvalidArgumentError>(
      [&] {
        static_cast<void>(image::resize(x, {2, 2}, {.method = "bicubic"}));
      },
      "expected the method \"bilinear\" or \"nearest\", got \"bicubic\"");
}

// uint8 images are resized by a loop instead of operations: all bits must be the same.
TEST(Image, OfBytesIsResizedToTheSameBits) {
  for (const std::int64_t channels : {1, 2, 3, 4, 5})
    for (const auto& [height, width] : {std::pair{37, 53}, {1, 1}, {2, 64}, {5, 3}})
      for (const auto& [to_height, to_width] :
           {std::pair{37, 53}, {1, 1}, {7, 1}, {16, 20}, {90, 111}, {37, 20}, {3, 53}}) {
        const Tensor one = random::uniform_int({height, width, channels}, 0, 256, {.dtype = uint8});
        const Tensor batch =
            random::uniform_int({3, height, width, channels}, 0, 256, {.dtype = uint8});
        for (const Tensor& x : {one, batch}) {
          const Tensor expected = image::resize(cast(x, float32), {to_height, to_width});
          const Tensor got = image::resize(x, {to_height, to_width});
          ASSERT_EQ(got.dtype(), float32);
          ASSERT_EQ(got.shape(), expected.shape());
          ASSERT_EQ(values_of(got), values_of(expected))
              << x.shape().to_string() << " to " << to_height << " x " << to_width;
        }
      }
  const Tensor x = random::uniform_int({9, 14, 3}, 0, 256, {.dtype = uint8});
  const Tensor large = random::uniform_int({375, 500, 3}, 0, 256, {.dtype = uint8});
  const Shape sizes[] = {{224, 224}, {5, 5}};
  for (const Tensor& in : {x, large})
    for (const Shape& to : sizes)
      for (const image::ResizeOptions& options :
           {image::ResizeOptions{},
            {.crop_to_aspect_ratio = true},
            {.pad_to_aspect_ratio = true, .fill_value = 0.5}}) {
        const auto resize = [&](const Tensor& images) {
          return image::resize(images, to.words(), options);
        };
        const auto expected = values_of(resize(cast(in, float32)));
        EXPECT_EQ(values_of(resize(in)), expected);
        EXPECT_EQ(values_of(function(resize)(in)), expected) << "traced";
      }
  expect_error<DTypeError>(
      [&] {
        static_cast<void>(image::resize(cast(x, int32), {2, 2}));
      },
      "expected floating-point images, got int32");
}

TEST(Image, IsResizedWithItsAspectRatio) {
  const Tensor x = counting({1, 4, 1}, float32);  // 0 1 2 3
  expect_tensor(image::resize(x, {1, 2}, {.crop_to_aspect_ratio = true}), float32, {1, 2, 1},
                {1, 2});
  expect_tensor(image::resize(x, {2, 2}, {.pad_to_aspect_ratio = true, .fill_value = 9.0}), float32,
                {2, 2, 1}, {4.75, 5.75, 9, 9}, 1e-6);
  EXPECT_EQ(
      image::resize(counting({3, 4, 9, 2}, float32), {2, 2}, {.pad_to_aspect_ratio = true}).shape(),
      (Shape{3, 2, 2, 2}));
  expect_error<InvalidArgumentError>(
      [&] {
        static_cast<void>(
            image::resize(x, {2, 2}, {.crop_to_aspect_ratio = true, .pad_to_aspect_ratio = true}));
      },
      "[resize] expected one of crop_to_aspect_ratio and pad_to_aspect_ratio, got both");
}

TEST(Image, HasGradients) {
  const auto all = [](const std::vector<Tensor>& in) {
    const Tensor x = image::adjust_contrast(image::flip_left_right(in[0]), 1.5);
    return image::rgb_to_grayscale(image::per_image_standardization(x));
  };
  expect_gradients(all, {random_tensor({2, 3, 3, 3})});
}

}  // namespace
}  // namespace tandem::image_test
