// Sizes that are computed from others, which are unknown while a function is traced.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "support/errors.h"
#include "tandem/tandem.h"

namespace tandem::derived_sizes_test {
namespace {

using testing::error_of;
using testing::expect_parts;
using Tensors = std::vector<Tensor>;
using Call = std::function<Tensor(const Tensors&)>;

Shape unknown(int rank) {
  Dims sizes;
  for (int axis = 0; axis < rank; ++axis) sizes.push_back(-1);
  return Shape(sizes);
}

// A function of tensors of which no size is known.
template <class F>
auto with_unknown_sizes(const F& call, const Tensors& inputs) {
  std::vector<InputSpec> specs;
  for (const Tensor& input : inputs) specs.push_back({unknown(input.rank()), input.dtype()});
  return function(call, {.input_signature = specs});
}

Tensors inputs_of(const std::vector<Shape>& shapes) {
  Tensors inputs;
  for (const Shape& shape : shapes) inputs.push_back(random::normal(shape));
  return inputs;
}

void expect_as_eagerly(const char* what, const Call& call, const std::vector<Shape>& shapes) {
  SCOPED_TRACE(what);
  const Tensors inputs = inputs_of(shapes);
  const Tensor expected = call(inputs), got = with_unknown_sizes(call, inputs)(inputs);
  EXPECT_EQ(got.shape(), expected.shape());
  EXPECT_EQ(got.to_vector<float>(), expected.to_vector<float>());
}

TEST(DerivedSizes, OfThreeOperandsBroadcastInAnyOrder) {
  const std::vector<std::vector<Shape>> cases = {{{2, 5, 4}, {2, 5, 4}, {2, 5, 4}},
                                                 {{2, 5, 4}, {2, 5, 4}, {2, 5, 1}},
                                                 {{1}, {1}, {4}},
                                                 {{1}, {4}, {1}},
                                                 {{4}, {1}, {1}},
                                                 {{1, 5}, {2, 1}, {2, 5}},
                                                 {{3}, {2, 1}, {2, 3}}};
  for (const std::vector<Shape>& shapes : cases) {
    expect_as_eagerly(
        "(x + y) * m", [](const Tensors& v) { return (v[0] + v[1]) * v[2]; }, shapes);
    expect_as_eagerly(
        "x + (y - x) * z", [](const Tensors& v) { return v[0] + (v[1] - v[0]) * v[2]; }, shapes);
    expect_as_eagerly(
        "where(x > 0, y, z)",
        [](const Tensors& v) { return where(greater(v[0], 0.0), v[1], v[2]); }, shapes);
  }
}

TEST(DerivedSizes, OfAResultWhoseShapeAloneIsUsed) {
  const auto z = [](const Tensors& v) { return (v[0] + v[1]) * v[2]; };
  const std::vector<Shape> shapes = {{2, 5, 4}, {2, 5, 4}, {1, 5, 1}};
  expect_as_eagerly(
      "ones_like", [&](const Tensors& v) { return ones_like(z(v)); }, shapes);
  expect_as_eagerly(
      "zeros",
      [&](const Tensors& v) {
        return zeros({z(v).dim(0), z(v).dim(1)});
      },
      shapes);
  const Tensors inputs = inputs_of(shapes);
  const auto normal =
      with_unknown_sizes([&](const Tensors& v) { return random::normal(z(v).shape()); }, inputs);
  EXPECT_EQ(normal(inputs).shape(), Shape({2, 5, 4}));
}

// The operation is left out of the program, because only the size of its result is needed.
TEST(DerivedSizes, ThatCannotBeComputedHaveTheErrorOfTheOperation) {
  const Tensors good = inputs_of({{2, 3}, {2, 3}}), bad = inputs_of({{2, 3}, {5, 3}});
  const auto f =
      with_unknown_sizes([](const Tensors& v) { return zeros((v[0] * v[1]).shape()); }, good);
  EXPECT_EQ(f(good).shape(), Shape({2, 3}));
  EXPECT_EQ(error_of<ShapeError>([&] { f(bad); }),
            "[Mul] expected shapes that broadcast together, got (2, 3) and (5, 3)");
}

TEST(DerivedSizes, BesideConstantsThatTheUserGave) {
  expect_as_eagerly("reshape to (6)", [](const Tensors& v) { return reshape(v[0], {6}); },
                    {{2, 3}});
  expect_as_eagerly("reshape to (2, 3)",
                    [](const Tensors& v) {
                      return reshape(v[0], {2, 3});
                    },
                    {{6}});
  expect_as_eagerly("reshape to (-1, 3)",
                    [](const Tensors& v) {
                      return reshape(v[0], {-1, 3});
                    },
                    {{6}});
  expect_as_eagerly("reshape to (-1, 2, 3)",
                    [](const Tensors& v) {
                      return reshape(v[0], {-1, 2, 3});
                    },
                    {{4, 6}});
  expect_as_eagerly("split into 3 and 2",
                    [](const Tensors& v) {
                      return split(v[0], std::vector<std::int64_t>{3, 2}, 0)[1];
                    },
                    {{5}});
  expect_as_eagerly("split into 2", [](const Tensors& v) { return split(v[0], 2, {.axis = 0})[1]; },
                    {{6}});
  expect_as_eagerly("padded times a constant",
                    [](const Tensors& v) {
                      return pad(v[0], {{1, 1}, {0, 0}}) * ones({4, 3});
                    },
                    {{2, 3}});
  expect_as_eagerly("concat times a constant",
                    [](const Tensors& v) {
                      return concat({v[0], v[0]}, 0) * ones({4, 3});
                    },
                    {{2, 3}});
  expect_as_eagerly("tile times a constant",
                    [](const Tensors& v) {
                      return tile(v[0], {2, 1}) * ones({4, 3});
                    },
                    {{2, 3}});
  expect_as_eagerly("broadcast_to", [](const Tensors& v) { return broadcast_to(v[0], {4}); },
                    {{1}});
  expect_as_eagerly("linspace", [](const Tensors& v) { return linspace(0, 1, v[0].dim(0)); },
                    {{5}});
}

TEST(DerivedSizes, OfSlices) {
  for (const std::int64_t size : {1, 2, 3, 5}) {
    expect_as_eagerly("0:3", [](const Tensors& v) { return v[0](Slice{0, 3}); }, {{size}});
    expect_as_eagerly("1:", [](const Tensors& v) { return v[0](Slice(1)); }, {{size}});
    expect_as_eagerly("-2:", [](const Tensors& v) { return v[0](Slice(-2)); }, {{size}});
    expect_as_eagerly("-1", [](const Tensors& v) { return v[0](-1); }, {{size}});
    expect_as_eagerly("of the second axis",
                      [](const Tensors& v) {
                        return v[0](Slice{}, Slice{1, 3});
                      },
                      {{2, size}});
  }
}

TEST(DerivedSizes, OfSlicesWithSteps) {
  for (const std::int64_t size : {0, 1, 2, 3, 5, 8}) {
    const std::vector<Slice> slices = {{0, {}, 2},   {1, {}, 3}, {{}, {}, -1}, {{}, {}, -2},
                                       {{}, {}, -5}, {4, 0, -2}, {-1, {}, 2},  {-2, -9, -3},
                                       {1, -1, 2},   {3, 1, 2},  {{}, {}, 20}, {{}, {}, -20}};
    for (const Slice& slice : slices)
      expect_as_eagerly("a step", [&](const Tensors& v) { return v[0](slice) * 2.0; }, {{size, 2}});
  }
}

// The number of steps depends on the size.
TEST(DerivedSizes, OfScansAndSearches) {
  for (const std::int64_t size : {0, 1, 2, 5, 8, 9}) {
    const std::vector<Shape> shapes = {{size, 2}};
    expect_as_eagerly(
        "cumprod", [](const Tensors& v) { return cumprod(v[0], 0); }, shapes);
    expect_as_eagerly(
        "logcumsumexp", [](const Tensors& v) { return logcumsumexp(v[0], 0); }, shapes);
    expect_as_eagerly(
        "cummax", [](const Tensors& v) { return cummax(v[0], 0).values; }, shapes);
    expect_as_eagerly(
        "cummin", [](const Tensors& v) { return cast(cummin(v[0], 0).indices, float32); }, shapes);
    expect_as_eagerly(
        "searchsorted",
        [](const Tensors& v) {
          return cast(searchsorted(range(v[0].dim(0), {.dtype = float32}), v[0]), float32);
        },
        shapes);
    expect_as_eagerly(
        "the gradient of cumprod",
        [](const Tensors& v) {
          GradientTape tape;
          tape.watch(v[0]);
          return tape.gradient(reduce_sum(cumprod(v[0], 0) * v[0]), v[0]);
        },
        shapes);
    for (const std::int64_t shift : {0, 1, -2, 7})
      expect_as_eagerly(
          "roll", [=](const Tensors& v) { return roll(v[0], shift, 0); }, shapes);
  }
}

TEST(DerivedSizes, OfPositionsAndHalves) {
  const auto positions = [](const Tensor& x) {
    return cast(reshape(range(4) % 2, {2, 2}), int64) + zeros_like(cast(x.slice(0, 0, 2), int64));
  };
  expect_as_eagerly("gather along an axis",
                    [&](const Tensors& v) { return gather(v[0], 0, positions(v[0])); }, {{5, 2}});
  expect_as_eagerly("take_along_axis",
                    [&](const Tensors& v) { return take_along_axis(v[0], positions(v[0]), 0); },
                    {{5, 2}});
  expect_as_eagerly("gather_nd",
                    [](const Tensors& v) {
                      return gather_nd(v[0], constant({{1, 2}, {0, 1}}));
                    },
                    {{2, 3, 4}});
  expect_as_eagerly(
      "scatter_nd",
      [](const Tensors& v) {
        return scatter_nd(reshape(constant({1, 0}), {2, 1}), v[0], {v[0].dim(0) + 1, v[0].dim(1)});
      },
      {{2, 3}});
  expect_as_eagerly("index_add",
                    [](const Tensors& v) {
                      return index_add(v[0], 1, constant({2, 0}), v[1]);
                    },
                    {{2, 3}, {2, 2}});
  expect_as_eagerly("unsorted_segment_mean",
                    [](const Tensors& v) {
                      return unsorted_segment_mean(v[0], range(v[0].dim(0)) % 2, v[0].dim(0) - 1);
                    },
                    {{4, 3}});
  expect_as_eagerly("glu", [](const Tensors& v) { return nn::glu(v[0], 1); }, {{3, 4}});
  expect_as_eagerly("depthwise convolution",
                    [](const Tensors& v) {
                      GradientTape tape;
                      tape.watch(v[0]);
                      tape.watch(v[1]);
                      const Tensor y = nn::depthwise_conv2d(v[0], v[1]);
                      const Tensors slopes = tape.gradient(reduce_sum(y * y), {v[0], v[1]});
                      return reduce_sum(slopes[0]) + reduce_sum(slopes[1]) + y;
                    },
                    {{2, 5, 5, 3}, {3, 3, 3, 2}});
}

// Functions that are made of operations check in each run what was not known before: otherwise
// other elements would be taken, or sizes of 1 would broadcast.
TEST(DerivedSizes, OfOperandsThatDoNotFitAreRefusedInTheRun) {
  const std::vector<std::pair<Call, std::vector<Shape>>> calls = {
      {[](const Tensors& v) {
         return tensordot(v[0], v[1], {0, 1}, {0, 1});
       },
       {{2, 3}, {3, 2}}},
      {[](const Tensors& v) { return einsum("ii->i", {v[0]}); }, {{2, 3}}},
      {[](const Tensors& v) { return cross(v[0], v[1], 1); }, {{2, 4}, {2, 4}}},
      {[](const Tensors& v) { return cdist(v[0], v[1]); }, {{2, 1}, {3, 4}}},
      {[](const Tensors& v) { return nn::functional::prelu(v[0], v[1]); }, {{2, 1}, {3}}},
      {[](const Tensors& v) { return unsorted_segment_sum(v[0], cast(v[1] * 0.0, int32), 2); },
       {{1, 3}, {4}}},
      {[](const Tensors& v) { return gather(v[0], 0, cast(v[1] * 0.0, int64)); }, {{2, 3}, {2, 4}}},
      {[](const Tensors& v) { return nn::depthwise_conv2d(v[0], v[1]); },
       {{1, 5, 5, 4}, {3, 3, 2, 2}}}};
  int number = 0;
  for (const auto& [call, shapes] : calls) {
    SCOPED_TRACE(number++);
    const Tensors inputs = inputs_of(shapes);
    const std::string error =
        error_of<InvalidArgumentError>([&] { with_unknown_sizes(call, inputs)(inputs); });
    EXPECT_EQ(error.find("10995"), std::string::npos) << error;
  }
}

TEST(DerivedSizes, OfAllAxesUpToRankEight) {
  const Dims all{2, 1, 3, 2, 1, 2, 3, 2};
  const std::vector<std::pair<const char*, Call>> calls = {
      {"a product", [](const Tensors& v) { return v[0] * v[1] + v[0]; }},
      {"softmax", [](const Tensors& v) { return nn::softmax(v[0], 0) - v[1]; }},
      {"a transpose", [](const Tensors& v) { return transpose(v[0]) * transpose(v[1]); }},
      {"a sum", [](const Tensors& v) { return reduce_sum(v[0], 0) + reduce_mean(v[0] * v[1], 0); }},
      {"pad",
       [](const Tensors& v) {
         return pad(
             v[0], std::vector<std::pair<Dim, Dim>>(static_cast<std::size_t>(v[0].rank()), {1, 1}));
       }},
      {"concat",
       [](const Tensors& v) {
         return concat({v[0], v[0] + v[1]}, v[0].rank() - 1);
       }},
      {"slices",
       [](const Tensors& v) {
         return v[0](Slice{0, v[0].dim(0) - 1}) + v[0][1];
       }},
      {"reshape",
       [](const Tensors& v) {
         return reshape(v[0], {-1, v[0].dim(0)}) / v[0].size();
       }},
      {"tile",
       [](const Tensors& v) {
         Dims twice;
         for (int axis = 0; axis < v[0].rank(); ++axis) twice.push_back(2);
         return tile(v[0], twice);
       }},
      {"where", [](const Tensors& v) { return where(v[0] > v[1], v[0], v[0].dim(0)); }}};
  for (int rank = 1; rank <= kMaxRank; ++rank) {
    Dims full, some;
    for (int axis = 0; axis < rank; ++axis) {
      full.push_back(all[axis]);
      some.push_back(axis % 3 == 0 ? 1 : all[axis]);
    }
    SCOPED_TRACE("rank " + std::to_string(rank));
    for (const auto& [what, call] : calls)
      expect_as_eagerly(what,
                        [&call = call](const Tensors& v) {
                          GradientTape tape;
                          tape.watch(v[0]);
                          const Tensor y = call(v), slope = tape.gradient(reduce_sum(y * y), v[0]);
                          return concat({reshape(y, {-1}), reshape(slope, {-1})}, 0);
                        },
                        {Shape(full), Shape(some)});
  }
}

TEST(DerivedSizes, OfProductsReductionsAndAttention) {
  expect_as_eagerly("einsum",
                    [](const Tensors& v) {
                      return einsum("bij,bjk->bik", {v[0], v[1]});
                    },
                    {{2, 3, 4}, {2, 4, 5}});
  expect_as_eagerly("top_k", [](const Tensors& v) { return top_k(v[0], 3).values; }, {{2, 5}});
  expect_as_eagerly("std", [](const Tensors& v) { return v[0].std(1); }, {{2, 5}});
  expect_as_eagerly(
      "attention",
      [](const Tensors& v) { return nn::scaled_dot_product_attention(v[0], v[1], v[2]); },
      {{2, 3, 2, 4}, {2, 5, 2, 4}, {2, 5, 2, 4}});
  for (const std::int64_t rows : {0, 1, 2, 5, 8})
    expect_as_eagerly("the gradient of reduce_prod",
                      [](const Tensors& v) {
                        GradientTape tape;
                        tape.watch(v[0]);
                        return tape.gradient(reduce_sum(reduce_prod(v[0], {.axis = {0}})), v[0]);
                      },
                      {{rows, 3}});
}

TEST(DerivedSizes, ThatAreWrongInARunHaveTheRealNumbersInTheirErrors) {
  const Tensors six = inputs_of({{2, 3}}), eight = inputs_of({{2, 4}});
  const auto f = with_unknown_sizes([](const Tensors& v) { return reshape(v[0], {6}); }, six);
  EXPECT_EQ(f(six).shape(), Shape({6}));
  EXPECT_EQ(error_of<ShapeError>([&] { f(eight); }),
            "[Reshape] expected a shape of 8 elements for a tensor of shape (2, 4), got (6)");
}

// One that is wrong for all sizes is refused when the function is traced.
TEST(DerivedSizes, ThatCannotBeRightAreRefusedWhileTracing) {
  const Tensors inputs = inputs_of({{2, 3}});
  bool ran = false;
  const auto f = with_unknown_sizes(
      [&](const Tensors& v) {
        const Tensor sum = concat({v[0], ones({2, 3})}, 0) + concat({v[0], ones({3, 3})}, 0);
        ran = true;
        return sum;
      },
      inputs);
  expect_parts(error_of<ShapeError>([&] { f(inputs); }), {"[AddV2]", "(?, 3)"});
  EXPECT_FALSE(ran);
}

TEST(DerivedSizes, AreNeededByGradientsAloneToo) {
  const Variable w(random::normal({4, 3}));
  const auto gradients = [&](const Tensors& v) {
    GradientTape tape;
    const Tensor loss =
        reduce_mean(negative(reduce_sum(v[1] * log(nn::softmax(matmul(v[0], w))), {.axis = {1}})));
    return tape.gradient(loss, w);
  };
  const Tensors inputs = {random::normal({5, 4}), nn::softmax(random::normal({5, 3}))};
  EXPECT_EQ(with_unknown_sizes(gradients, inputs)(inputs).to_vector<float>(),
            gradients(inputs).to_vector<float>());
}

TEST(DerivedSizes, LetASessionRunTheUpdatesAlone) {
  Graph graph;
  Tensor x, labels, loss;
  Graph::Operation train;
  {
    const GraphScope scope(graph);
    x = placeholder(float32, {-1, 4}, "x");
    labels = placeholder(float32, {-1, 3}, "labels");
    const Variable w(zeros({4, 3}), {.name = "w"}), b(zeros({3}), {.name = "b"});
    const Tensor y = nn::softmax(matmul(x, w) + b);
    loss = reduce_mean(negative(reduce_sum(labels * log(y), {.axis = {1}})));
    optimizers::Optimizer optimizer = optimizers::SGD(0.5);
    train = graph.updates("train", [&] { optimizer.minimize(loss, {w, b}); });
  }
  Session alone(graph, {.initialize_variables = true}),
      together(graph, {.initialize_variables = true});
  for (const std::int64_t n : {5, 7}) {
    const Feeds feeds = {{x, ones({n, 4})}, {labels, one_hot(zeros({n}, {.dtype = int32}), 3)}};
    alone.run(feeds, {train});
    together.run(feeds, {loss, train});
    EXPECT_EQ(alone.run(feeds, {loss})[0].item<float>(),
              together.run(feeds, {loss})[0].item<float>());
  }
}

TEST(DerivedSizes, MustBeKnownWhereTheyDecideTheNumberOfResults) {
  const Tensors inputs = inputs_of({{3, 2}});
  EXPECT_EQ(error_of<InvalidArgumentError>([&] {
              with_unknown_sizes([](const Tensors& v) { return unstack(v[0])[0]; }, inputs)(inputs);
            }),
            "[Unpack] expected axis 0 of 'args_0' to be known when the graph is made, because the "
            "number of results depends on it");
}

TEST(DerivedSizes, AreSerialisedWithTheirExpressions) {
  Graph graph;
  {
    const GraphScope building(graph);
    const Tensor a = placeholder(float32, {-1, -1}, "a"), b = placeholder(float32, {-1, -1}, "b"),
                 m = placeholder(float32, {-1, -1}, "m");
    const Tensor product = (a + b) * m;
    const Tensor pooled = nn::max_pool2d(reshape(product, {1, product.dim(0), product.dim(1), 1}),
                                         {.window = 2, .padding = nn::Padding::kSame});
    const Tensor joined = concat({zeros(product.shape()), ones({2, product.dim(1)})}, 0);
    EXPECT_EQ(identity(pooled, {.name = "pooled"}).rank(), 4);
    EXPECT_EQ(identity(joined, {.name = "joined"}).rank(), 2);
    const Tensor resized =
        nn::functional::interpolate(expand_dims(product, 0), {.scale_factor = {1.7}});
    EXPECT_EQ(identity(resized, {.name = "resized"}).rank(), 3);
  }
  const Graph copy = Graph::deserialize(graph.serialize());
  Session original(graph), read(copy);
  for (const std::int64_t n : {2, 5}) {
    const Feeds feeds = {{"a:0", ones({n, 3})}, {"b:0", ones({1, 3})}, {"m:0", ones({n, 1})}};
    EXPECT_EQ(read.run(feeds, "pooled:0").shape(), Shape({1, (n + 1) / 2, 2, 1}));
    EXPECT_EQ(read.run(feeds, "joined:0").shape(), Shape({n + 2, 3}));
    EXPECT_EQ(read.run(feeds, "resized:0").shape(), Shape({1, n, 5}));
    for (const char* name : {"pooled:0", "joined:0", "resized:0"})
      EXPECT_EQ(read.run(feeds, name).to_vector<float>(),
                original.run(feeds, name).to_vector<float>());
  }
}

}  // namespace
}  // namespace tandem::derived_sizes_test
