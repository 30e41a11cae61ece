// Functions and layers that are made of operations check sizes that are unknown while a function is
// traced in each run, where eager calls check them: an operation that broadcasts would take others.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "support/errors.h"
#include "tandem/tandem.h"

namespace tandem::unknown_checks_test {
namespace {

namespace F = nn::functional;
using Tensors = std::vector<Tensor>;
using Call = std::function<Tensor(const Tensors&)>;

struct Case {
  std::string name;  // in the message
  Call call;
  std::vector<Shape> right, wrong;
  std::vector<DType> dtypes = {};  // float32 if there are none
};

Tensors inputs_of(const Case& c, const std::vector<Shape>& shapes) {
  Tensors inputs;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    const DType dtype = i < c.dtypes.size() ? c.dtypes[i] : float32;
    inputs.push_back(is_floating(dtype) ? random::uniform(shapes[i], 0.1, 0.9)
                     : dtype == bool_   ? ones(shapes[i], bool_)
                                        : random::uniform_int(shapes[i], 0, 2, {.dtype = dtype}));
  }
  return inputs;
}

std::vector<InputSpec> unknown(const Case& c) {
  std::vector<InputSpec> specs;
  for (std::size_t i = 0; i < c.right.size(); ++i) {
    Dims sizes;
    for (int axis = 0; axis < c.right[i].rank(); ++axis) sizes.push_back(-1);
    specs.push_back({Shape(sizes), i < c.dtypes.size() ? c.dtypes[i] : float32});
  }
  return specs;
}

// The right shapes give the bits of an eager call; the wrong ones are refused as eagerly.
void expect_checked(const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    const auto traced = function(c.call, {.input_signature = unknown(c)});
    const Tensors right = inputs_of(c, c.right), wrong = inputs_of(c, c.wrong);
    EXPECT_EQ(cast(traced(right), float64).to_vector<double>(),
              cast(c.call(right), float64).to_vector<double>());
    for (const auto& call : {Call(c.call), Call([&](const Tensors& x) { return traced(x); })}) {
      const std::string error = testing::any_error_of([&] { call(wrong); });
      EXPECT_NE(error.find("[" + c.name + "] "), std::string::npos) << error;
    }
  }
}

TEST(UnknownChecks, OfLosses) {
  const auto weights = [](const Tensors& v) {
    return losses::MeanSquaredError()(v[0], v[1], v[2]);
  };
  expect_checked({
      {"gaussian_nll_loss",
       [](const Tensors& v) { return F::gaussian_nll_loss(v[0], v[1], v[2]); },
       {{2, 3}, {2, 3}, {2, 1}},
       {{1, 3}, {1, 3}, {5, 3}}},
      {"binary_cross_entropy",
       [](const Tensors& v) { return F::binary_cross_entropy(v[0], v[1], {.weight = v[2]}); },
       {{2, 3}, {2, 3}, {2, 1}},
       {{1, 3}, {1, 3}, {5, 3}}},
      {"cross_entropy",
       [](const Tensors& v) { return F::cross_entropy(v[0], v[1], {.weight = v[2]}); },
       {{4, 3}, {4}, {3}},
       {{4, 3}, {4}, {5}},
       {float32, int32}},
      {"multi_margin_loss",
       [](const Tensors& v) { return F::multi_margin_loss(v[0], v[1], {.weight = v[2]}); },
       {{4, 3}, {4}, {3}},
       {{4, 3}, {4}, {5}},
       {float32, int32}},
      {"mean_squared_error", weights, {{4, 3}, {4, 3}, {4}}, {{4, 3}, {4, 3}, {1}}},
  });
}

TEST(UnknownChecks, OfArrays) {
  const Tensor mask = constant(std::vector<bool>{true, false, true});
  expect_checked({
      {"slice_scatter",
       [](const Tensors& v) {
         return slice_scatter(ensure_shape(v[0], {-1, 3}), v[1], 1, Slice{0, 2});
       },
       {{5, 3}, {5, 2}},
       {{5, 3}, {1, 2}}},
      {"diagonal_scatter",
       [](const Tensors& v) { return diagonal_scatter(v[0], v[1]); },
       {{5, 3, 3}, {5, 3}},
       {{5, 3, 3}, {1, 3}}},
      {"addmm",
       [](const Tensors& v) { return addmm(v[0], v[1], v[2], 1.0, 1.0); },
       {{4}, {2, 3}, {3, 4}},
       {{4}, {2, 3}, {3, 1}}},
      {"boolean_mask",
       [&](const Tensors& v) { return boolean_mask(v[0], mask); },
       {{3, 2}},
       {{5, 2}}},
      {"cross",
       [](const Tensors& v) { return cross(v[0], v[1], 0); },
       {{3, 2}, {3, 2}},
       {{4, 2}, {3, 2}}},
      {"cdist",
       [](const Tensors& v) { return cdist(v[0], v[1]); },
       {{3, 2}, {4, 2}},
       {{3, 2}, {4, 1}}},
      {"top_k", [](const Tensors& v) { return top_k(v[0], 3).values; }, {{2, 4}}, {{2, 2}}},
  });
}

TEST(UnknownChecks, OfLayersAndModules) {
  const layers::Add add;
  const nn::GroupNorm groups(2, 4, nn::GroupNormOptions{.affine = false});
  const layers::LSTM lstm(4);
  lstm(ones({2, 3, 5}));
  const auto steps = [](const Tensor& x) { return ensure_shape(x, {-1, 3, -1}); };
  expect_checked({
      {"add",
       [&](const Tensors& v) {
         return add({v[0], v[1]});
       },
       {{5, 3}, {5, 3}},
       {{5, 3}, {1, 3}}},
      {"rms_norm",
       [](const Tensors& v) { return F::rms_norm(v[0], {3}, v[1]); },
       {{5, 3}, {3}},
       {{5, 1}, {3}}},
      {"group_norm",
       [&](const Tensors& v) { return groups->forward(v[0]); },
       {{2, 4, 3}},
       {{2, 6, 3}}},
      {"lstm",
       [&](const Tensors& v) {
         return lstm(Tensors{steps(v[0]), v[1], v[2]});
       },
       {{2, 3, 5}, {2, 4}, {2, 4}},
       {{2, 3, 5}, {1, 4}, {2, 4}}},
      {"lstm",
       [&](const Tensors& v) {
         return lstm(Tensors{steps(v[0]), v[1]});
       },
       {{2, 3, 5}, {2, 3}},
       {{2, 3, 5}, {1, 3}},
       {float32, bool_}},
      {"max_pool1d",
       [](const Tensors& v) { return F::max_pool1d(v[0], 3, {.stride = 1, .dilation = 2}); },
       {{2, 3, 7}},
       {{2, 3, 4}}},
      {"adaptive_avg_pool1d",
       [](const Tensors& v) { return F::adaptive_avg_pool1d(v[0], 1); },
       {{2, 3, 7}},
       {{2, 3, 0}}},
      {"conv3d",
       [](const Tensors& v) {
         return nn::conv3d(v[0], ones({3, 2, 2, 1, 1}));
       },
       {{1, 4, 3, 3, 1}},
       {{1, 2, 3, 3, 1}}},
  });
}

TEST(UnknownChecks, OfFunctionsWhoseNumbersDependOnSizes) {
  expect_checked({
      {"median", [](const Tensors& v) { return median(v[0], 1).values; }, {{2, 5}}, {{2, 0}}},
      {"mode", [](const Tensors& v) { return mode(v[0], 1).values; }, {{2, 5}}, {{2, 0}}},
      {"quantile",
       [](const Tensors& v) { return quantile(v[0], 0.3, {.axis = 1}); },
       {{2, 5}},
       {{2, 0}}},
      {"unfold",
       [](const Tensors& v) {
         return F::unfold(v[0], {2, 3});
       },
       {{2, 3, 5, 7}},
       {{2, 3, 5, 2}}},
  });
  const auto among = function([](const Tensor& x, const Tensor& y) { return isin(x, y); },
                              {.input_signature = {{{-1}, float32}, {{-1}, float32}}});
  const Tensor x = constant({1.0f, 2.0f, NAN, 3.0f});
  EXPECT_EQ(among(x, constant({3.0f, NAN, 1.0f, 1.0f})).to_vector<bool>(),
            (std::vector<bool>{true, false, false, true}));
  EXPECT_EQ(among(x, zeros({0})).to_vector<bool>(), std::vector<bool>(4, false));
  const auto covariance = function([](const Tensor& rows) { return cov(rows); },
                                   {.input_signature = {{{2, -1}, float32}}});
  for (const std::int64_t size : {1, 2, 300}) {
    const Tensor rows = random::normal({2, size});
    EXPECT_EQ(covariance(rows).to_vector<float>().size(), 4u);
    if (size == 1) continue;  // NaN
    EXPECT_EQ(covariance(rows).to_vector<float>(), cov(rows).to_vector<float>());
  }
}

// `call` with all sizes unknown has the values and gradients of eager calls, for each of the
// inputs' shapes.
struct AnySizes {
  std::string name;
  Call call;
  std::vector<std::vector<Shape>> shapes;
  std::vector<DType> dtypes = {};
};

void expect_same_bits(const std::vector<AnySizes>& cases) {
  for (const AnySizes& c : cases) {
    SCOPED_TRACE(c.name);
    const Call gradient = [&](const Tensors& v) {
      GradientTape tape;
      tape.watch(v[0]);
      return tape.gradient(reduce_sum(square(c.call(v))), v[0]);
    };
    const auto open = unknown({c.name, c.call, c.shapes[0], {}, c.dtypes});
    const auto values = function(c.call, {.input_signature = open}),
               gradients = function(gradient, {.input_signature = open});
    for (const std::vector<Shape>& shapes : c.shapes) {
      const Tensors inputs = inputs_of({c.name, c.call, shapes, {}, c.dtypes}, shapes);
      const Tensor expected = c.call(inputs), got = values(inputs);
      EXPECT_EQ(got.shape(), expected.shape());
      EXPECT_EQ(got.to_vector<float>(), expected.to_vector<float>());
      EXPECT_EQ(gradients(inputs).to_vector<float>(), gradient(inputs).to_vector<float>());
    }
  }
}

TEST(UnknownSizes, AreResized) {
  const auto resized = [](const nn::InterpolateOptions& options) -> Call {
    return [options](const Tensors& v) { return F::interpolate(v[0], options); };
  };
  const std::vector<std::vector<Shape>> images = {{{2, 3, 5, 7}}, {{1, 2, 2, 3}}, {{1, 1, 10, 11}}};
  std::vector<AnySizes> cases;
  for (const char* mode : {"nearest", "nearest-exact", "bilinear", "bicubic", "area"})
    for (const bool corners : {false, true}) {
      if (corners && !std::string(mode).starts_with("bi")) continue;
      cases.push_back(
          {mode, resized({.size = {4, 3}, .mode = mode, .align_corners = corners}), images});
      for (const double factor : {0.7, 1.7, 2.0})
        cases.push_back(
            {mode, resized({.scale_factor = {factor}, .mode = mode, .align_corners = corners}),
             images});
    }
  cases.push_back({"trilinear",
                   resized({.scale_factor = {1.3}, .mode = "trilinear"}),
                   {{{1, 2, 3, 4, 2}}, {{2, 1, 1, 2, 5}}}});
  cases.push_back(
      {"linear",
       resized({.scale_factor = {0.29}, .mode = "linear", .recompute_scale_factor = true}),
       {{{1, 2, 100}}, {{1, 1, 7}}}});
  expect_same_bits(cases);
  // In float64 100 * 0.29 is less than 29.
  EXPECT_EQ(F::interpolate(ones({1, 1, 100}), {.scale_factor = {0.29}}).dim(2), 28);
  expect_checked({
      {"interpolate", resized({.size = {2}}), {{1, 1, 3}}, {{1, 1, 0}}},
      {"interpolate", resized({.scale_factor = {0.3}}), {{1, 1, 4}}, {{1, 1, 3}}},
      {"max_unpool1d",
       [](const Tensors& v) { return F::max_unpool1d(v[0], v[1], 2, {}, {7}); },
       {{1, 1, 3}, {1, 1, 3}},
       {{1, 1, 5}, {1, 1, 5}},
       {float32, int64}},
  });
}

TEST(UnknownSizes, AreCombinedCutAndScattered) {
  const auto scattered = [](const char* how) -> Call {
    return [how](const Tensors& v) { return scatter_reduce(v[0], 0, v[1], v[2], how); };
  };
  const std::vector<std::vector<Shape>> three = {{{3, 4}, {2, 4}, {2, 4}},
                                                 {{5, 2}, {3, 2}, {3, 3}}};
  const std::vector<DType> of_three = {float32, int64, float32};
  const auto split = [](std::size_t part) -> Call {
    return [part](const Tensors& v) { return tensor_split(v[0], 3, 1)[part]; };
  };
  const std::vector<std::vector<Shape>> vectors = {{{5}}, {{1}}, {{2}}, {{6}}, {{3}}};
  expect_same_bits({
      {"sum", scattered("sum"), three, of_three},
      {"amax", scattered("amax"), three, of_three},
      {"scatter", [](const Tensors& v) { return scatter(v[0], 0, v[1], v[2]); }, three, of_three},
      {"combinations", [](const Tensors& v) { return combinations(v[0], 2); }, vectors},
      {"combinations", [](const Tensors& v) { return combinations(v[0], 3); }, vectors},
      {"combinations", [](const Tensors& v) { return combinations(v[0], 3, true); }, vectors},
      {"pdist", [](const Tensors& v) { return F::pdist(v[0], 1.0); }, {{{4, 3}}, {{1, 2}}}},
      {"vander", [](const Tensors& v) { return vander(v[0]); }, vectors},
      {"first", split(0), {{{2, 7}}, {{2, 2}}}},
      {"last", split(2), {{{2, 7}}, {{2, 2}}}},
      {"split_at",
       [](const Tensors& v) {
         return tensor_split(v[0], {1, -2}, 0)[1];
       },
       {{{6, 2}}, {{3, 1}}}},
      {"unfold", [](const Tensors& v) { return unfold(v[0], 0, 2, 3); }, {{{9, 2}}, {{2, 1}}}},
      {"select_scatter",
       [](const Tensors& v) { return select_scatter(v[0], v[1], 1, -2); },
       {{{3, 4}, {3}}, {{1, 2}, {1}}}},
      {"slice_scatter",
       [](const Tensors& v) {
         return slice_scatter(v[0], v[1], 0, Slice{1, -1, 2});
       },
       {{{6, 2}, {2, 2}}, {{3, 1}, {1, 1}}, {{2, 3}, {0, 3}}}},
      {"index_fill",
       [](const Tensors& v) { return index_fill(v[0], 0, v[1] - 1.0, 7.0); },
       {{{4, 2}, {3}}, {{2, 5}, {1}}},
       {float32, int64}},
      {"max_unpool2d",
       [](const Tensors& v) { return F::max_unpool2d(v[0], v[1], 2); },
       {{{1, 2, 3, 2}, {1, 2, 3, 2}}, {{2, 1, 1, 1}, {2, 1, 1, 1}}},
       {float32, int64}},
      {"conv_transpose3d",
       [](const Tensors& v) { return F::conv_transpose3d(v[0], v[1], {}, {.stride = 2}); },
       {{{1, 2, 3, 2, 2}, {2, 1, 2, 2, 1}}}},
  });
  expect_checked({
      {"unfold", [](const Tensors& v) { return unfold(v[0], 0, 3, 1); }, {{4}}, {{2}}},
      {"select_scatter",
       [](const Tensors& v) { return select_scatter(v[0], v[1], 0, 2); },
       {{3, 2}, {2}},
       {{2, 2}, {2}}},
      {"slice_scatter",
       [](const Tensors& v) {
         return slice_scatter(v[0], v[1], 0, Slice{1, -1});
       },
       {{4, 2}, {2, 2}},
       {{4, 2}, {1, 2}}},
  });
}

TEST(UnknownChecks, OfElementsThatTheHostReadsAreRefused) {
  const Call different = [](const Tensors& v) { return unique(v[0]).y; };
  const auto traced =
      function(different, {.input_signature = unknown({"", different, {Shape({3})}, {}})});
  EXPECT_NE(testing::error_of<FailedPreconditionError>([&] {
              traced(Tensors{ones({3})});
            }).find("the elements of a symbolic tensor were asked for"),
            std::string::npos);
}

TEST(UnknownChecks, OfARankThatDependsOnASizeAreRefused) {
  const layers::CategoryEncoding one_hot(3, {.output_mode = "one_hot"});
  const auto encode = function([&](const Tensor& x) { return one_hot(x); },
                               {.input_signature = {{{-1, -1}, int32}}});
  testing::expect_parts(testing::error_of<InvalidArgumentError>([&] {
                          encode(ones({2, 1}, int32));
                        }),
                        {"expected axis 1 of 'args_0' to be known when the graph is made, "
                         "because the rank of the result depends on it"});
  const auto covariance = function(
      [](const Tensor& x) {
        return cov(ensure_shape(x, {-1, 4}));
      },
      {.input_signature = {{{-1, -1}, float32}}});
  const Tensor rows = random::normal({3, 4});
  EXPECT_EQ(covariance(rows).to_vector<float>(), cov(rows).to_vector<float>());
  testing::expect_parts(testing::error_of<ShapeError>([&] {
                          covariance(ones({1, 4}));
                        }),
                        {"[cov] expected more than one variable", "got shape (1, 4)"});
}

}  // namespace
}  // namespace tandem::unknown_checks_test
