// Compares operations and their gradients in every floating dtype with stored results of PyTorch in
// float64. reference/generate.py says how to add cases.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "support/tensors.h"
#include "tandem/array.h"
#include "tandem/autodiff.h"
#include "tandem/math.h"
#include "tandem/nn.h"

namespace tandem::reference_test {
namespace {

using Json = nlohmann::json;
using Inputs = std::vector<Tensor>;
using Operation = std::function<Tensor(const Json& attrs, const Inputs& in)>;

Shape shape_of(const Json& sizes) { return Shape(Dims(sizes.get<std::vector<std::int64_t>>())); }
Dims dims_of(const Json& attrs, const char* name) {
  return Dims(attrs.at(name).get<std::vector<std::int64_t>>());
}
nn::Pair pair_of(const Json& attrs, const char* name) {
  const std::vector<std::int64_t> sizes = attrs.value(name, std::vector<std::int64_t>{1, 1});
  return {sizes[0], sizes[1]};
}
nn::Padding padding_of(const Json& attrs) {
  return nn::padding_from_name(attrs.value("padding", "valid"));
}

Operation unary(Tensor (*function)(const Tensor&)) {
  return [function](const Json&, const Inputs& in) { return function(in[0]); };
}
Operation binary(Tensor (*function)(const Tensor&, const Tensor&)) {
  return [function](const Json&, const Inputs& in) { return function(in[0], in[1]); };
}
Operation reduction(Tensor (*function)(const Tensor&, const ReduceOptions&)) {
  return [function](const Json& attrs, const Inputs& in) {
    return function(in[0], {.axis = attrs.contains("axes") ? Axes(dims_of(attrs, "axes")) : Axes(),
                            .keepdims = attrs.value("keepdims", false)});
  };
}
Operation convolution(Tensor (*function)(const Tensor&, const Tensor&, const Tensor&,
                                         const nn::Conv2DOptions&)) {
  return [function](const Json& attrs, const Inputs& in) {
    return function(in[0], in[1], in.size() > 2 ? in[2] : Tensor(),
                    {.strides = pair_of(attrs, "strides"),
                     .padding = padding_of(attrs),
                     .dilations = pair_of(attrs, "dilations"),
                     .groups = attrs.value("groups", std::int64_t{1})});
  };
}
Operation pooling(Tensor (*function)(const Tensor&, const nn::Pool2DOptions&)) {
  return [function](const Json& attrs, const Inputs& in) {
    return function(in[0], {.window = pair_of(attrs, "window"),
                            .strides = pair_of(attrs, "strides"),
                            .padding = padding_of(attrs)});
  };
}

Tensor padded(const Json& attrs, const Inputs& in) {
  return pad(in[0], attrs.at("paddings").get<std::vector<std::pair<std::int64_t, std::int64_t>>>(),
             attrs.at("value"));
}
Tensor attention(const Json& attrs, const Inputs& in) {
  nn::AttentionOptions options{.mask = in.size() > 3 ? in[3] : Tensor(),
                               .causal = attrs.value("causal", false)};
  if (attrs.contains("scale")) options.scale = attrs["scale"].get<double>();
  return nn::scaled_dot_product_attention(in[0], in[1], in[2], options);
}

// One line per operation of generate.py.
const std::map<std::string, Operation>& operations() {
  using A = const Json&;
  using I = const Inputs&;
  static const std::map<std::string, Operation> table = {
      {"conv2d", convolution(nn::conv2d)},
      {"depthwise_conv2d", convolution(nn::depthwise_conv2d)},
      {"max_pool2d", pooling(nn::max_pool2d)},
      {"avg_pool2d", pooling(nn::avg_pool2d)},
      {"relu", unary(nn::relu)},
      {"relu6", unary(nn::relu6)},
      {"leaky_relu", [](A a, I in) { return nn::leaky_relu(in[0], a.at("alpha")); }},
      {"elu", [](A a, I in) { return nn::elu(in[0], a.at("alpha")); }},
      {"selu", unary(nn::selu)},
      {"gelu", [](A, I in) { return nn::gelu(in[0]); }},
      {"gelu_tanh", [](A, I in) { return nn::gelu(in[0], true); }},
      {"swish", unary(nn::swish)},
      {"softplus", unary(nn::softplus)},
      {"tanh", unary(tanh)},
      {"sigmoid", unary(sigmoid)},
      {"exp", unary(exp)},
      {"expm1", unary(expm1)},
      {"log", unary(log)},
      {"log1p", unary(log1p)},
      {"sqrt", unary(sqrt)},
      {"rsqrt", unary(rsqrt)},
      {"square", unary(square)},
      {"reciprocal", unary(reciprocal)},
      {"sin", unary(sin)},
      {"cos", unary(cos)},
      {"erf", unary(erf)},
      {"abs", unary(abs)},
      {"sign", unary(sign)},
      {"negative", unary(negative)},
      {"pow_number", [](A a, I in) { return pow(in[0], a.at("exponent").get<double>()); }},
      {"clip", [](A a, I in) { return clip_by_value(in[0], a.at("low"), a.at("high")); }},
      {"softmax", [](A a, I in) { return nn::softmax(in[0], a.at("axis")); }},
      {"log_softmax", [](A a, I in) { return nn::log_softmax(in[0], a.at("axis")); }},
      {"softmax_cross_entropy", binary(nn::softmax_cross_entropy)},
      {"sparse_softmax_cross_entropy", binary(nn::sparse_softmax_cross_entropy)},
      {"sigmoid_cross_entropy", binary(nn::sigmoid_cross_entropy)},
      {"batch_norm_training",
       [](A a, I in) { return nn::batch_norm_training(in[0], in[1], in[2], a.at("epsilon")).y; }},
      {"batch_norm_inference",
       [](A a, I in) {
         return nn::batch_norm_inference(in[0], in[1], in[2], in[3], in[4], a.at("epsilon"));
       }},
      {"layer_norm",
       [](A a, I in) { return nn::layer_norm(in[0], in[1], in[2], a.at("epsilon")); }},
      {"attention", attention},
      {"matmul",
       [](A a, I in) {
         return matmul(in[0], in[1],
                       {.transpose_a = a.value("transpose_a", false),
                        .transpose_b = a.value("transpose_b", false)});
       }},
      {"add", binary(add)},
      {"subtract", binary(subtract)},
      {"multiply", binary(multiply)},
      {"divide", binary(divide)},
      {"pow", binary(pow)},
      {"maximum", binary(maximum)},
      {"minimum", binary(minimum)},
      {"squared_difference", binary(squared_difference)},
      {"floor_mod", binary(floor_mod)},
      {"where", [](A, I in) { return where(in[0], in[1], in[2]); }},
      {"reduce_sum", reduction(reduce_sum)},
      {"reduce_mean", reduction(reduce_mean)},
      {"reduce_prod", reduction(reduce_prod)},
      {"reduce_max", reduction(reduce_max)},
      {"reduce_min", reduction(reduce_min)},
      {"reduce_variance", reduction(reduce_variance)},
      {"reduce_std", reduction(reduce_std)},
      {"reduce_logsumexp", reduction(reduce_logsumexp)},
      {"norm", reduction(norm)},
      {"cumsum", [](A a, I in) { return cumsum(in[0], a.at("axis")); }},
      {"reshape", [](A a, I in) { return reshape(in[0], shape_of(a.at("shape"))); }},
      {"transpose", [](A a, I in) { return transpose(in[0], dims_of(a, "axes")); }},
      {"broadcast_to", [](A a, I in) { return broadcast_to(in[0], shape_of(a.at("shape"))); }},
      {"tile", [](A a, I in) { return tile(in[0], dims_of(a, "multiples")); }},
      {"reverse", [](A a, I in) { return reverse(in[0], dims_of(a, "axes")); }},
      {"concat", [](A a, I in) { return concat(in, a.at("axis")); }},
      {"stack", [](A a, I in) { return stack(in, a.at("axis")); }},
      {"slice", [](A a, I in) { return slice(in[0], dims_of(a, "begin"), dims_of(a, "size")); }},
      {"pad", padded},
      {"gather", [](A a, I in) { return gather(in[0], in[1], a.at("axis")); }},
      {"split",
       [](A a, I in) {
         return split(in[0], a.at("sizes").get<std::vector<std::int64_t>>(),
                      a.at("axis"))[a.at("part").get<std::size_t>()];
       }},
  };
  return table;
}

// The values of generate.py's Input.
Tensor input_of(const Json& spec, std::uint32_t seed, DType dtype) {
  const Shape shape = shape_of(spec.at("shape"));
  const std::string kind = spec.value("kind", "signed");
  const auto count = static_cast<std::size_t>(shape.num_elements());
  std::mt19937 generator(seed);
  std::vector<double> values(count);
  if (kind == "distinct") {
    std::vector<int> chosen(128);
    std::iota(chosen.begin(), chosen.end(), 0);
    for (std::size_t i = 0; i < std::min<std::size_t>(count, 127); ++i)
      std::swap(chosen[i], chosen[i + generator() % (128 - i)]);
    for (std::size_t i = 0; i < count; ++i) values[i] = (2 * chosen[i] - 127) / 32.0;
    return constant(values, {.dtype = dtype, .shape = shape});
  }
  const std::uint32_t limit = spec.value("limit", 0u);
  for (double& value : values) {
    const std::uint32_t word = generator();
    const int odd = 2 * static_cast<int>(word % 64) + 1;
    if (kind == "signed") value = (odd - 64) / 32.0;
    if (kind == "positive") value = odd / 32.0;
    if (kind == "unit") value = odd / 128.0;
    if (kind == "index") value = word % limit;
    if (kind == "mask") value = word % 4 != 0;
  }
  if (kind == "index") dtype = int64;
  if (kind == "mask") dtype = bool_;
  return constant(values, {.dtype = dtype, .shape = shape});
}

// The tolerance for rounding, relative to the largest numbers that a result is computed from.
double tolerance_of(const Json& test, DType dtype) {
  if (dtype == float64) return 1e-10;  // stored results have 12 digits
  return test.value("units", 8.0) * testing::epsilon_of(dtype);
}

void expect_close(const Tensor& actual, DType dtype, const Shape& shape, const Json& stored,
                  double tolerance) {
  const auto expected = stored.get<std::vector<double>>();
  double largest = 1.0;
  for (const double value : expected) largest = std::fmax(largest, std::fabs(value));
  ASSERT_EQ(actual.dtype(), dtype);
  testing::expect_tensor(
      cast(actual, float64) / largest, float64, shape,
      [&] {
        std::vector<double> scaled = expected;
        for (double& value : scaled) value /= largest;
        return scaled;
      }(),
      tolerance);
}

void check(const Json& test, DType dtype) {
  const std::uint32_t seed = test.at("seed");
  Inputs inputs, sources;
  GradientTape tape;
  for (const Json& spec : test.at("inputs")) {
    inputs.push_back(input_of(spec, seed + static_cast<std::uint32_t>(inputs.size()), dtype));
    if (inputs.back().dtype() != dtype) continue;
    tape.watch(inputs.back());
    sources.push_back(inputs.back());
  }
  const Operation& run = operations().at(test.at("operation"));
  const Tensor y = run(test.value("attrs", Json::object()), inputs);
  const double tolerance = tolerance_of(test, dtype);
  const Shape shape = shape_of(test.at("shape"));
  expect_close(y, dtype, shape, test.at("values"), tolerance);
  const Tensor weights =
      input_of({{"shape", test.at("shape")}, {"kind", "positive"}}, seed + 9, dtype);
  const std::vector<Tensor> gradients = tape.gradient(
      y, sources,
      {.output_gradient = weights, .unconnected_gradients = UnconnectedGradients::kZero});
  for (std::size_t i = 0; i < sources.size(); ++i) {
    SCOPED_TRACE(::testing::Message() << "gradient " << i);
    expect_close(gradients[i], dtype, sources[i].shape(), test.at("gradients")[i], tolerance);
  }
}

TEST(Reference, OperationsAgreeInEveryDtype) {
  std::ifstream file(TANDEM_SOURCE_DIR "/tests/ops/reference/cases.json");
  const Json cases = Json::parse(file);
  ASSERT_GT(cases.size(), 400u);
  for (const Json& test : cases)
    for (const DType dtype : testing::kFloatingTypes) {
      SCOPED_TRACE(::testing::Message()
                   << name_of(dtype) << ' ' << test.at("operation") << ' '
                   << test.value("attrs", Json::object()) << " of " << test.at("inputs"));
      check(test, dtype);
      if (::testing::Test::HasFailure()) return;
    }
}

}  // namespace
}  // namespace tandem::reference_test
