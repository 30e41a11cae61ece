// Sampling at positions and bags of rows, against plain loops with PyTorch's formulas.
#include "tandem/sampling_modules.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "support/gradient_check.h"
#include "support/tensors.h"
#include "tandem/array.h"
#include "tandem/creation.h"
#include "tandem/function.h"
#include "tandem/math.h"

namespace tandem::sampling_modules_test {
namespace {

using namespace testing;
namespace F = nn::functional;
using Values = std::vector<double>;

double reflect(double at, double low, double high) {
  if (low == high) return 0.0;
  const double span = high - low;
  at = std::abs(at - low);
  const double rest = std::fmod(at, span);
  return std::fmod(std::floor(at / span), 2.0) == 0.0 ? rest + low : span - rest + low;
}

double brought(double at, std::int64_t size, const nn::GridSampleOptions& o) {
  const auto n = static_cast<double>(size);
  if (o.padding_mode == "zeros") return at;
  if (o.padding_mode == "reflection")
    at = o.align_corners ? reflect(at, 0.0, n - 1.0) : reflect(at, -0.5, n - 0.5);
  return std::clamp(at, 0.0, n - 1.0);
}

struct Tap {
  double at, weight;
};

std::vector<Tap> taps_of(double grid, std::int64_t size, const nn::GridSampleOptions& o) {
  const auto n = static_cast<double>(size);
  const double at = o.align_corners ? (grid + 1) / 2 * (n - 1) : ((grid + 1) * n - 1) / 2;
  if (o.mode == "bicubic") {
    std::vector<Tap> taps;
    const double t = at - std::floor(at);
    for (int i = -1; i < 3; ++i) {
      const double d = std::abs(t - i), a = -0.75;
      const double weight =
          d <= 1 ? ((a + 2) * d - (a + 3)) * d * d + 1 : ((a * d - 5 * a) * d + 8 * a) * d - 4 * a;
      taps.push_back({brought(std::floor(at) + i, size, o), weight});
    }
    return taps;
  }
  const double inside = brought(at, size, o), first = std::floor(inside);
  if (o.mode == "nearest") return {{std::nearbyint(inside), 1.0}};
  return {{first, first + 1 - inside}, {first + 1, inside - first}};
}

// Samples one image or volume with one channel.
Values sampled(const Tensor& x, const Tensor& grid, const nn::GridSampleOptions& o) {
  const Values from = values_of(x), positions = values_of(grid);
  const int axes = x.rank() - 2;
  const std::int64_t depth = axes == 3 ? x.dim(2).value() : 1, height = x.dim(-2),
                     width = x.dim(-1);
  Values result;
  for (std::size_t i = 0; i < positions.size(); i += static_cast<std::size_t>(axes)) {
    double sum = 0.0;
    const auto deep = axes == 3 ? taps_of(positions[i + 2], depth, o) : std::vector<Tap>{{0, 1}};
    for (const Tap& z : deep)
      for (const Tap& y : taps_of(positions[i + 1], height, o))
        for (const Tap& c : taps_of(positions[i], width, o)) {
          const bool inside = z.at >= 0 && z.at < static_cast<double>(depth) && y.at >= 0 &&
                              y.at < static_cast<double>(height) && c.at >= 0 &&
                              c.at < static_cast<double>(width);
          if (!inside) continue;
          const auto at = static_cast<std::size_t>(
              (static_cast<std::int64_t>(z.at) * height + static_cast<std::int64_t>(y.at)) * width +
              static_cast<std::int64_t>(c.at));
          sum += from[at] * z.weight * y.weight * c.weight;
        }
    result.push_back(sum);
  }
  return result;
}

std::vector<nn::GridSampleOptions> all_options() {
  std::vector<nn::GridSampleOptions> all;
  for (const char* mode : {"bilinear", "nearest", "bicubic"})
    for (const char* padding : {"zeros", "border", "reflection"})
      for (const bool align : {false, true})
        all.push_back({.mode = mode, .padding_mode = padding, .align_corners = align});
  return all;
}

TEST(GridSample, OfImagesAndVolumes) {
  const Tensor image = random_tensor({1, 1, 4, 5}), volume = random_tensor({1, 1, 3, 4, 2});
  const Tensor grid = random_tensor({1, 6, 7, 2}, 3) * 2.5,
               deep = random_tensor({1, 2, 3, 4, 3}, 4) * 2.5;
  for (const nn::GridSampleOptions& o : all_options())
    expect_tensor(F::grid_sample(image, grid, o), float64, {1, 1, 6, 7}, sampled(image, grid, o),
                  1e-12);
  for (const nn::GridSampleOptions& o : all_options())
    expect_tensor(F::grid_sample(volume, deep, o), float64, {1, 1, 2, 3, 4},
                  sampled(volume, deep, o), 1e-12);
  // Several examples and channels are sampled one by one.
  const Tensor several = random_tensor({2, 3, 4, 5}, 5), grids = random_tensor({2, 2, 2, 2}, 6);
  const Tensor y = F::grid_sample(several, grids);
  for (std::int64_t n = 0; n < 2; ++n)
    for (std::int64_t c = 0; c < 3; ++c)
      expect_tensor(slice(y, {n, c, 0, 0}, {1, 1, -1, -1}), float64, {1, 1, 2, 2},
                    sampled(slice(several, {n, c, 0, 0}, {1, 1, -1, -1}),
                            slice(grids, {n, 0, 0, 0}, {1, -1, -1, -1}), {}),
                    1e-12);
}

TEST(GridSample, HasGradientsOfBoth) {
  const Tensor x = random_tensor({1, 2, 3, 4}), grid = random_tensor({1, 2, 3, 2}, 8) * 1.4;
  for (const nn::GridSampleOptions& o : all_options()) {
    const auto f = [&](const std::vector<Tensor>& in) { return F::grid_sample(in[0], in[1], o); };
    expect_gradients(f, {x, grid});
    if (o.mode == "bilinear" && o.align_corners) expect_second_order(f, {x, grid});
  }
}

TEST(GridSample, OfUnknownSizesAndLowPrecision) {
  const auto f = function(
      [](const Tensor& x, const Tensor& grid) {
        return F::grid_sample(x, grid, {.padding_mode = "reflection", .align_corners = true});
      },
      {.input_signature = {{.shape = {-1, 1, -1, -1}, .dtype = float64},
                           {.shape = {-1, -1, 2, 2}, .dtype = float64}}});
  for (const std::int64_t size : {1, 3}) {
    const Tensor x = random_tensor({1, 1, size, size + 1}),
                 grid = random_tensor({1, 2, 2, 2}) * 3.0;
    expect_tensor(f(x, grid), float64, {1, 1, 2, 2},
                  sampled(x, grid, {.padding_mode = "reflection", .align_corners = true}), 1e-12);
  }
  const Tensor half = cast(ones({1, 1, 2, 2}), bfloat16);
  expect_tensor(F::grid_sample(half, cast(zeros({1, 1, 1, 2}), bfloat16)), bfloat16, {1, 1, 1, 1},
                {1});
}

// Positions beyond the input give zeros, whatever the elements are.
TEST(GridSample, OfPositionsFarAway) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Tensor x = constant({nan, 1.0, 2.0, 3.0}, {.shape = {1, 1, 2, 2}});
  const Tensor grid = constant({5.0, 5.0, 1e30, 0.0}, {.shape = {1, 1, 2, 2}});
  expect_tensor(F::grid_sample(x, grid), x.dtype(), {1, 1, 1, 2}, {0, 0});
  expect_tensor(
      F::grid_sample(x, grid, {.padding_mode = "border", .align_corners = true}).slice(3, 0, 1),
      x.dtype(), {1, 1, 1, 1}, {3});
}

TEST(GridSample, RefusesWhatDoesNotFit) {
  const Tensor x = ones({1, 1, 2, 2}), grid = zeros({1, 1, 1, 2});
  expect_error<ShapeError>(
      [&] {
        static_cast<void>(F::grid_sample(x, zeros({1, 1, 1, 3})));
      },
      "[grid_sample] expected images");
  expect_error<DTypeError>([&] { static_cast<void>(F::grid_sample(x, cast(grid, float64))); },
                           "[grid_sample] expected one floating dtype");
  expect_error<InvalidArgumentError>(
      [&] { static_cast<void>(F::grid_sample(x, grid, {.mode = "cubic"})); },
      "[grid_sample] expected mode \"bilinear\", \"nearest\" or \"bicubic\", got");
  expect_error<InvalidArgumentError>(
      [&] { static_cast<void>(F::grid_sample(x, grid, {.padding_mode = "wrap"})); },
      "[grid_sample] expected padding_mode");
}

TEST(AffineGrid, OfTheIdentityIsThePositionsOfTheElements) {
  const Tensor identity =
      constant({1.0, 0.0, 0.0, 0.0, 1.0, 0.0}, {.dtype = float64, .shape = {1, 2, 3}});
  expect_tensor(F::affine_grid(identity, {1, 1, 1, 2}), float64, {1, 1, 2, 2}, {-0.5, 0, 0.5, 0});
  expect_tensor(F::affine_grid(identity, {1, 1, 1, 3}, {.align_corners = true}), float64,
                {1, 1, 3, 2}, {-1, 0, 0, 0, 1, 0});
  for (const bool align : {false, true}) {
    const Tensor x = random_tensor({1, 2, 4, 3});
    const Tensor y = F::grid_sample(
        x, F::affine_grid(identity, x.shape(), {.align_corners = align}), {.align_corners = align});
    expect_tensor(y, float64, x.shape(), values_of(x), 1e-12);
  }
  const Tensor theta = random_tensor({2, 3, 4});
  const Tensor volumes = F::affine_grid(theta, {2, 1, 2, 3, 2});
  ASSERT_EQ(volumes.shape(), Shape({2, 2, 3, 2, 3}));
  // Row 2 of slice 1, column 0: (-0.5, 2 / 3, 0.5).
  for (std::int64_t i = 0; i < 3; ++i)
    EXPECT_NEAR(volumes(1, 1, 2, 0, i).item<double>(),
                -0.5 * theta(1, i, 0).item<double>() + 2.0 / 3.0 * theta(1, i, 1).item<double>() +
                    0.5 * theta(1, i, 2).item<double>() + theta(1, i, 3).item<double>(),
                1e-12);
  expect_gradients(
      [](const std::vector<Tensor>& in) {
        return F::affine_grid(in[0], {2, 1, 2, 3});
      },
      {random_tensor({2, 2, 3})});
  expect_error<ShapeError>(
      [&] {
        static_cast<void>(F::affine_grid(theta, {2, 1, 2, 3}));
      },
      "[affine_grid] expected theta (batch, 2, 3)");
}

TEST(EmbeddingBag, SumsMeansAndMaxima) {
  const Tensor table = constant({{1.0, -1.0}, {2.0, -5.0}, {4.0, -3.0}});
  const Tensor indices = constant({0, 2, 1, 1}), offsets = constant({0, 2, 2});
  const auto of = [&](const nn::EmbeddingBagOptions& o) {
    return values_of(F::embedding_bag(indices, table, offsets, o));
  };
  EXPECT_EQ(of({.mode = "sum"}), (Values{5, -4, 0, 0, 4, -10}));
  EXPECT_EQ(of({.mode = "mean"}), (Values{2.5, -2, 0, 0, 2, -5}));
  EXPECT_EQ(of({.mode = "max"}), (Values{4, -1, 0, 0, 2, -5}));
  EXPECT_EQ(of({.mode = "sum", .per_sample_weights = constant({1.0, 2.0, 3.0, -1.0})}),
            (Values{9, -7, 0, 0, 4, -10}));
  EXPECT_EQ(of({.mode = "mean", .padding_idx = 0}), (Values{4, -3, 0, 0, 2, -5}));
  EXPECT_EQ(of({.mode = "max", .padding_idx = -3}), (Values{4, -3, 0, 0, 2, -5}));
  EXPECT_EQ(of({.mode = "sum", .padding_idx = 1}), (Values{5, -4, 0, 0, 0, 0}));
  EXPECT_EQ(values_of(F::embedding_bag(indices, table, constant({0, 1, 4}),
                                       {.mode = "sum", .include_last_offset = true})),
            (Values{1, -1, 8, -13}));
  EXPECT_EQ(values_of(F::embedding_bag(reshape(indices, {2, 2}), table)), (Values{2.5, -2, 2, -5}));
  EXPECT_EQ(values_of(F::embedding_bag(reshape(indices, {2, 2}), table, {}, {.mode = "max"})),
            (Values{4, -1, 2, -5}));
}

TEST(EmbeddingBag, HasGradients) {
  const Tensor indices = constant({0, 2, 1, 1, 3}), offsets = constant({0, 2, 2});
  for (const char* mode : {"sum", "mean", "max"})
    for (const std::optional<std::int64_t> padding : {std::optional<std::int64_t>(), {2}})
      expect_gradients(
          [&](const std::vector<Tensor>& in) {
            return F::embedding_bag(indices, in[0], offsets,
                                    {.mode = mode, .padding_idx = padding});
          },
          {random_tensor({4, 3})});
  expect_gradients(
      [&](const std::vector<Tensor>& in) {
        return F::embedding_bag(indices, in[0], offsets,
                                {.mode = "sum", .per_sample_weights = in[1]});
      },
      {random_tensor({4, 3}), random_tensor({5}, 2)});
}

TEST(EmbeddingBag, OfUnknownSizesAndAsAModule) {
  const Tensor table = random_tensor({5, 2});
  const auto f = function(
      [&](const Tensor& indices, const Tensor& offsets) {
        return F::embedding_bag(indices, table, offsets);
      },
      {.input_signature = {{.shape = {-1}, .dtype = int64}, {.shape = {-1}, .dtype = int64}}});
  const Tensor indices = cast(constant({4, 0, 3}), int64), offsets = cast(constant({0, 1}), int64);
  EXPECT_EQ(values_of(f(indices, offsets)), values_of(F::embedding_bag(indices, table, offsets)));
  nn::EmbeddingBag bag(5, 2, {.mode = "sum", .padding_idx = 1});
  EXPECT_EQ(values_of(bag(constant({{1, 1}}))), (Values{0, 0}));
  EXPECT_EQ(bag(indices, offsets).shape(), Shape({2, 2}));
  EXPECT_EQ(values_of(gather(bag->weight, constant({1}))), (Values{0, 0}));
}

TEST(EmbeddingBag, RefusesWhatDoesNotFit) {
  const Tensor table = ones({3, 2}), line = constant({0, 1}), bags = constant({0});
  expect_error<InvalidArgumentError>(
      [&] { static_cast<void>(F::embedding_bag(line, table, bags, {.mode = "prod"})); },
      "[embedding_bag] expected mode");
  expect_error<InvalidArgumentError>(
      [&] {
        static_cast<void>(F::embedding_bag(line, table, bags, {.per_sample_weights = ones({2})}));
      },
      "[embedding_bag] expected mode \"sum\" with per_sample_weights, got \"mean\"");
  expect_error<ShapeError>([&] { static_cast<void>(F::embedding_bag(line, table)); },
                           "[embedding_bag] expected a matrix of indices, or a vector");
  expect_error<InvalidArgumentError>(
      [&] {
        static_cast<void>(F::embedding_bag(reshape(line, {1, 2}), table, bags));
      },
      "[embedding_bag] expected no offsets");
  expect_error<DTypeError>([&] { static_cast<void>(F::embedding_bag(line, table, ones({1}))); },
                           "[embedding_bag] expected offsets of int32 or int64");
  expect_error<InvalidArgumentError>([] { nn::EmbeddingBag(3, 2, {.padding_idx = 3}); },
                                     "[embedding_bag] expected a padding_idx of 3 rows, got 3");
}

}  // namespace
}  // namespace tandem::sampling_modules_test
