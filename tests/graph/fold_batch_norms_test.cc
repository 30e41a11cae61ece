// Batch normalisations that programs fold into the constants of the product before them.
//
// TANDEM_RANDOM_PROGRAMS=N compares N random models; TANDEM_RANDOM_PROGRAMS_FIRST=S begins with
// seed S.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "graph/graph_support.h"
#include "graph/passes/passes.h"
#include "support/files.h"
#include "support/gpus.h"
#include "support/outcomes.h"
#include "support/tensors.h"
#include "train/random_model.h"

namespace tandem::fold_batch_norms_test {
namespace {

using Names = std::vector<std::string>;
using testing::Tensors;

struct Norm {
  Tensor gamma, beta, mean, variance;
  explicit Norm(std::int64_t columns, DType dtype = float32)
      : gamma(cast(random::normal({columns}), dtype)),
        beta(cast(random::normal({columns}), dtype)),
        mean(cast(random::normal({columns}), dtype)),
        variance(cast(random::uniform({columns}, 0.1, 2.0), dtype)) {}
  Tensor operator()(const Tensor& x, double epsilon = 1e-3) const {
    return nn::batch_norm_inference(x, gamma, beta, mean, variance, epsilon);
  }
};

struct Case {
  Tensor images = random::normal({2, 6, 6, 4}), rows = random::normal({5, 8});
  Tensor kernel = random::normal({3, 3, 4, 8}), weights = random::normal({8, 8});
  Tensor bias = random::normal({8});
  Norm norm{8};
};

// Within the share `tolerance` of the largest number; NaN is NaN, and infinity is infinity.
void expect_close(const Tensor& actual, const Tensor& expected, double tolerance) {
  const std::vector<float> a = actual.to_vector<float>(), e = expected.to_vector<float>();
  float largest = 1.0f;
  for (const float number : e)
    if (std::isfinite(number)) largest = std::max(largest, std::abs(number));
  for (std::size_t i = 0; i < e.size(); ++i) {
    if (a[i] == e[i] || (std::isnan(a[i]) && std::isnan(e[i]))) continue;
    ASSERT_NEAR(a[i], e[i], tolerance * static_cast<double>(largest)) << i;
  }
}

// The operations after the pass. The results must be those of eager calls, but for rounding.
Names folded(const Tensor& x, const std::function<Tensors(const Tensor&)>& body) {
  Block block = block_of({x}, [&](const Tensors& in) { return body(in[0]); });
  fold_constants(block);
  drop_dead_operations(block);
  fold_batch_norms(block);
  const Names names = names_of(block);
  const Tensors results = Program(std::move(block)).run(std::span(&x, 1)), expected = body(x);
  for (std::size_t i = 0; i < expected.size(); ++i) expect_close(results[i], expected[i], 2e-6);
  return names;
}

class FoldBatchNorms : public ::testing::Test {
 protected:
  const DeviceScope cpu_{"/cpu:0"};
};

TEST_F(FoldBatchNorms, IntoConvolutionsAndDenseProducts) {
  const Case c;
  EXPECT_EQ(folded(c.images,
                   [&](const Tensor& x) -> Tensors { return {c.norm(nn::conv2d(x, c.kernel))}; }),
            (Names{"Conv2D"}));
  EXPECT_EQ(folded(c.images,
                   [&](const Tensor& x) -> Tensors {
                     return {nn::relu(c.norm(nn::conv2d(x, c.kernel, c.bias)))};
                   }),
            (Names{"Conv2D", "Relu"}));
  const Tensor grouped = random::normal({3, 3, 2, 8});
  EXPECT_EQ(folded(c.images,
                   [&](const Tensor& x) -> Tensors {
                     return {c.norm(nn::conv2d(x, grouped, {}, {.groups = 2}))};
                   }),
            (Names{"Conv2D"}));
  EXPECT_EQ(
      folded(c.rows,
             [&](const Tensor& x) -> Tensors {
               return {c.norm(nn::dense(x, c.weights)), c.norm(nn::dense(x, c.weights, c.bias))};
             }),
      (Names{"MatMulBiasAdd", "MatMulBiasAdd"}));
}

TEST_F(FoldBatchNorms, SeveralInTurnUntilAResultHasAnotherUse) {
  const Case c;
  EXPECT_EQ(
      folded(c.images,
             [&](const Tensor& x) -> Tensors { return {c.norm(c.norm(nn::conv2d(x, c.kernel)))}; }),
      (Names{"Conv2D"}));
  EXPECT_EQ(folded(c.images,
                   [&](const Tensor& x) -> Tensors {
                     const Tensor y = c.norm(nn::conv2d(x, c.kernel));
                     return {c.norm(y) + y};
                   }),
            (Names{"Conv2D", "BatchNormInference", "AddV2"}));
}

TEST_F(FoldBatchNorms, BeyondViewsThatKeepTheColumns) {
  const Case c;
  const Norm narrow(4);
  EXPECT_EQ(folded(c.images,
                   [&](const Tensor& x) -> Tensors {
                     return {c.norm(reshape(nn::conv2d(x, c.kernel), {8, 4, 8})) * 2.0};
                   }),
            (Names{"Conv2D", "MulScalar"}));
  EXPECT_EQ(folded(c.rows,
                   [&](const Tensor& x) -> Tensors {
                     const Tensor y = nn::dense(x, c.weights);
                     return {narrow(reshape(y, {10, 4})), c.norm(y)};
                   }),
            (Names{"MatMulBiasAdd", "BatchNormInference", "BatchNormInference"}));
  EXPECT_EQ(folded(c.rows,
                   [&](const Tensor& x) -> Tensors {
                     const Tensor flat = reshape(nn::dense(x, c.weights), {40});
                     return {c.norm(reshape(slice(flat, Sizes{4}, Sizes{24}), {3, 8}))};
                   }),
            (Names{"MatMulBiasAdd", "BatchNormInference"}));
}

TEST_F(FoldBatchNorms, NotWhereTheProductIsUsedOrChanges) {
  const Case c;
  const Names unchanged = {"Conv2D", "BatchNormInference"};
  EXPECT_EQ(folded(c.images,
                   [&](const Tensor& x) -> Tensors {
                     const Tensor y = nn::conv2d(x, c.kernel);
                     return {c.norm(y), y};
                   }),
            unchanged);
  const Variable kernel(c.kernel);
  EXPECT_EQ(
      folded(c.images, [&](const Tensor& x) -> Tensors { return {c.norm(nn::conv2d(x, kernel))}; })
          .back(),
      unchanged.back());
  EXPECT_EQ(folded(c.images,
                   [&](const Tensor& x) -> Tensors {
                     return {nn::batch_norm_inference(
                         nn::conv2d(x, c.kernel), c.norm.gamma,
                         reduce_mean(x, {.axis = Dims{0, 1, 2}})[0] + c.norm.beta, c.norm.mean,
                         c.norm.variance)};
                   })
                .back(),
            unchanged.back());
  std::vector<float> memory(3 * 3 * 4 * 8, 0.5f);
  const Tensor given = from_blob(memory, {3, 3, 4, 8});
  EXPECT_EQ(
      folded(c.images, [&](const Tensor& x) -> Tensors { return {c.norm(nn::conv2d(x, given))}; }),
      unchanged);
}

TEST_F(FoldBatchNorms, NotInOtherDtypesOrWithInfiniteNumbers) {
  Case c;
  for (const DType dtype : {float64, float16, bfloat16}) {
    const Norm norm(8, dtype);
    const Tensor kernel = cast(c.kernel, dtype), x = cast(c.images, dtype);
    Block block = block_of(
        {x}, [&](const Tensors& in) -> Tensors { return {norm(nn::conv2d(in[0], kernel))}; });
    fold_batch_norms(block);
    EXPECT_EQ(names_of(block), (Names{"Conv2D", "BatchNormInference"}));
  }
  c.norm.variance = zeros({8});
  for (const float mean : {0.0f, INFINITY}) {
    Block block = block_of({c.images}, [&](const Tensors& in) -> Tensors {
      return {nn::batch_norm_inference(nn::conv2d(in[0], c.kernel), c.norm.gamma, c.norm.beta,
                                       full({8}, mean), c.norm.variance, mean == 0.0f ? 0.0 : 1.0)};
    });
    fold_constants(block);
    fold_batch_norms(block);
    EXPECT_EQ(names_of(block), (Names{"Conv2D", "BatchNormInference"}));
  }
}

// A NaN or an infinity of an image reaches the same results.
TEST_F(FoldBatchNorms, NaNAndInfinityRemain) {
  const Case c;
  for (const float value : {NAN, INFINITY}) {
    std::vector<float> pixels = c.images.to_vector<float>();
    pixels[70] = value;
    const Tensor x = constant(pixels, {.shape = c.images.shape()});
    const auto body = [&](const Tensor& images) {
      return nn::relu(c.norm(nn::conv2d(images, c.kernel)));
    };
    const auto traced = function([&](const Tensor& images) { return body(images); });
    const std::vector<float> expected = body(x).to_vector<float>(),
                             actual = traced(x).to_vector<float>();
    for (std::size_t i = 0; i < expected.size(); ++i)
      EXPECT_EQ(std::isfinite(actual[i]), std::isfinite(expected[i])) << i;
  }
}

// --- frozen graphs ---

Names products_of(const Graph& graph) {
  Names names;
  for (const Graph::Operation& operation : graph.operations())
    if (operation.type() == "Conv2D" || operation.type() == "MatMulBiasAdd")
      names.push_back(operation.name() + ":0");
  return names;
}

// Random numbers for all variables.
void scramble(const Model& model) {
  for (Variable& variable : model.variables()) {
    const bool variance = variable.name().find("variance") != std::string::npos;
    variable.assign(cast(variance ? random::uniform(variable.shape(), 0.1, 2.0)
                                  : random::normal(variable.shape(), 0.0, 0.4),
                         variable.dtype()));
  }
}

std::string frozen(const Model& model, bool with_gradient) {
  Graph graph;
  std::vector<Fetch> outputs;
  {
    const GraphScope building(graph);
    const Tensor x = placeholder(float32, {-1, 6, 6, 4}, "x");
    const Tensor y = cast(model(x), float32);
    outputs.emplace_back(identity(y, {.name = "y"}));
    if (with_gradient)
      outputs.emplace_back(identity(gradients(reduce_sum(square(y)), {x})[0], {.name = "dx"}));
  }
  return graph.serialize({.freeze_variables = true, .outputs = outputs});
}

class FoldedModels : public ::testing::TestWithParam<const char*> {};

// Fetching the results of all products keeps every normalisation: the program without the pass.
TEST_P(FoldedModels, ComputeAsWithoutThePass) {
  testing::use_gpus(1);
  const std::string policy = GetParam();
  const double tolerance = policy == "float32" ? 2e-5 : policy == "float64" ? 1e-6 : 0.1;
  const testing::TemporaryDirectory folder;
  std::size_t differences = 0;  // in the last bits
  testing::for_each_seed(12, [&](std::uint32_t seed) {
    SCOPED_TRACE(seed);
    const Model model = testing::RandomModel{.seed = seed, .policy = policy}.make(false);
    scramble(model);
    const std::string path = folder / "model.graph", bytes = frozen(model, seed % 2 == 0);
    Graph graph = Graph::deserialize(bytes);
    graph.save(path, {});
    if (seed % 3 > 0) graph = Graph::load(path);
    const DeviceScope device(seed % 5 == 0 ? "/gpu:0" : "/cpu:0");
    Session session(graph);
    const Names named = products_of(graph);
    for (const std::int64_t rows : {3, 1}) {
      const Tensor x = random::normal({rows, 6, 6, 4});
      std::vector<Fetch> fetches = {"y:0"};
      if (seed % 2 == 0) fetches.emplace_back("dx:0");
      const std::size_t results = fetches.size();
      const Tensors actual = session.run({{"x:0", x}}, fetches);
      fetches.insert(fetches.end(), named.begin(), named.end());
      const Tensors expected = session.run({{"x:0", x}}, fetches);
      for (std::size_t i = 0; i < results; ++i) expect_close(actual[i], expected[i], tolerance);
      differences += testing::bits_of(actual[0]) == testing::bits_of(expected[0]) ? 0 : 1;
      expect_close(actual[0], cast(model(x), float32), tolerance);
      if (named.empty()) continue;  // one value of a folded program by its name
      const Tensor one = session.run({{"x:0", x}}, {"y:0", named.front()})[1];
      expect_close(cast(one, float32), cast(expected[results], float32), tolerance);
    }
  });
  // CUDA's GPUs, the default device where there are any, keep the normalisations.
  if (policy == "float32" && testing::nvidia_gpus() == 0) {
    EXPECT_GT(differences, 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(Policy, FoldedModels,
                         ::testing::Values("float32", "float64", "mixed_bfloat16", "mixed_float16"),
                         [](const auto& info) { return std::string(info.param); });

// Programs for other sizes share the folded kernel, which goes with the last one.
TEST(FoldedKernels, AreShared) {
  const DeviceScope cpu("/cpu:0");
  const auto weights = [] { return config::get_memory_info("CPU:0").by_tag.weights; };
  const Variable kernel(random::normal({3, 3, 16, 32}));
  const Norm norm(32);
  Graph graph;
  {
    const GraphScope building(graph);
    const Tensor x = placeholder(float32, {-1, 8, 8, 16}, "x");
    identity(norm(nn::conv2d(x, kernel)), {.name = "y"});
  }
  const Graph loaded =
      Graph::deserialize(graph.serialize({.freeze_variables = true, .outputs = {"y:0"}}));
  const std::int64_t before = weights();
  {
    Session session(loaded);
    session.run({{"x:0", random::normal({2, 8, 8, 16})}}, "y:0");
    const std::int64_t once = weights() - before;
    EXPECT_GE(once, 3 * 3 * 16 * 32 * 4);
    session.run({{"x:0", random::normal({5, 8, 8, 16})}}, "y:0");
    EXPECT_EQ(weights() - before, once);
  }
  EXPECT_EQ(weights(), before);
}

}  // namespace
}  // namespace tandem::fold_batch_norms_test
