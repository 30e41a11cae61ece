// Runs operations through a PJRT plug-in, and compares them with the CPU's kernels.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "device/device_manager.h"
#include "graph/stablehlo/module.h"
#include "graph/stablehlo/run_numbers.h"
#include "operation_cases.h"
#include "runtime/traced_function.h"
#include "support/pjrt.h"
#include "tandem/tandem.h"
#include "tensor/tensor_impl.h"

namespace tandem {
namespace {

using Step = std::function<std::vector<Tensor>(const std::vector<Tensor>&)>;

stablehlo::Module lower(const detail::TracedCall& traced, const std::string& name) {
  const TracedFunction& function = *traced.function;
  stablehlo::ModuleOptions options{
      .name = name,
      .nodes = stablehlo::needed_nodes(*function.graph, function.feeds, function.fetches, true),
      .feeds = function.feeds,
      .fetches = function.fetches};
  for (const Tensor& input : traced.inputs) options.feed_specs.push_back(impl_of(input));
  return stablehlo::lower_module(*function.graph, options);
}

std::shared_ptr<pjrt::Buffer> send(pjrt::Client& client, const TensorSpec& spec, const void* host) {
  const std::size_t bytes =
      static_cast<std::size_t>(spec.shape.num_elements()) * size_of(spec.dtype);
  auto kept = std::make_shared<std::vector<std::byte>>(bytes + 1);
  if (bytes > 0) std::memcpy(kept->data(), host, bytes);
  return client.from_host(kept->data(), spec.dtype, spec.shape, 0, kept);
}

// Compiles a module and runs it on one device with these arguments.
std::vector<Tensor> run_module(pjrt::Client& client, const stablehlo::Module& module,
                               const std::vector<Tensor>& inputs) {
  pjrt::CompileOptions options{.name = module.name, .devices = {0}};
  std::vector<std::shared_ptr<pjrt::Buffer>> arguments;
  const auto same = [](const Node& node) -> const Node& { return node; };
  for (const stablehlo::Parameter& parameter : module.parameters) {
    options.parameters.push_back({parameter.spec.dtype, parameter.spec.shape});
    using Kind = stablehlo::Parameter::Kind;
    switch (parameter.kind) {
      case Kind::kFeed:
        arguments.push_back(send(client, parameter.spec, impl_of(inputs[parameter.index]).data()));
        break;
      case Kind::kConstant:
        arguments.push_back(send(client, parameter.spec,
                                 parameter.node->value.defined()
                                     ? impl_of(parameter.node->value).data()
                                     : parameter.node->literal.data()));
        break;
      case Kind::kVariable: {
        const Tensor value = parameter.node->resource->value();
        arguments.push_back(send(client, parameter.spec, impl_of(value).data()));
        break;
      }
      case Kind::kNumbers: {
        const std::vector<double> numbers = stablehlo::numbers_of_run(module.numbers, same);
        const std::vector<float> narrow(numbers.begin(), numbers.end());
        arguments.push_back(send(client, parameter.spec, narrow.data()));
        break;
      }
      case Kind::kDoubles:
        arguments.push_back(
            send(client, parameter.spec, stablehlo::numbers_of_run(module.doubles, same).data()));
        break;
      case Kind::kKeys:
        arguments.push_back(
            send(client, parameter.spec, stablehlo::keys_of_run(module.keys, same).data()));
        break;
    }
  }
  for (const TensorSpec& spec : module.fetches) options.results.push_back({spec.dtype, spec.shape});
  for (const std::size_t written : module.written)
    options.results.push_back(options.parameters[written]);
  std::vector<Tensor> results;
  const auto outputs = client.compile(module.text, options)->run({arguments});
  for (const auto& buffer : outputs[0]) {
    std::vector<std::byte> bytes(
        static_cast<std::size_t>(buffer->shape().num_elements()) * size_of(buffer->dtype()) + 1);
    buffer->to_host(bytes.data(), bytes.size());
    results.push_back(
        from_host(DeviceManager::get().host(), buffer->shape(), buffer->dtype(), bytes.data()));
  }
  return results;
}

struct Difference {
  double largest = 0.0;  // relative to max(1, the largest element)
  bool same_nans = true;
};
Difference difference(const Tensor& a, const Tensor& b) {
  const std::vector<double> x = cast(a, float64).to_vector<double>(),
                            y = cast(b, float64).to_vector<double>();
  double scale = 1.0;
  for (const double value : y)
    if (std::isfinite(value)) scale = std::max(scale, std::fabs(value));
  Difference found;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (!std::isfinite(x[i]) || !std::isfinite(y[i])) {
      found.same_nans = found.same_nans && (x[i] == y[i] || (std::isnan(x[i]) && std::isnan(y[i])));
      continue;
    }
    found.largest = std::max(found.largest, std::fabs(x[i] - y[i]) / scale);
  }
  return found;
}

// Sums are in another order, and functions differ in the last bits; 16-bit results are rounded from
// such numbers, and gradients are computed from rounded results.
double tolerance_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat64: return 1e-12;
    case DType::kFloat32: return 2e-5;  // a sum of 4,096 numbers
    case DType::kFloat16: return 2e-3;
    case DType::kBFloat16: return 1.6e-2;
    default: return 0.0;
  }
}

// Runs `step` on the CPU and through the plug-in, with the same random numbers.
void expect_same(pjrt::Client& client, const std::string& name, const Step& step,
                 const std::vector<Tensor>& inputs) {
  const auto function = tandem::function(step, {.name = name});
  const random::GeneratorState state = random::get_state();
  const std::vector<Tensor> expected = function(inputs);
  random::set_state(state);
  const stablehlo::Module module = lower(function.trace(inputs), name);
  std::vector<Tensor> results;
  try {
    results = run_module(client, module, inputs);
  } catch (const Error& error) {
    ADD_FAILURE() << name << ": " << error.what() << "\n" << module.text.substr(0, 3000);
    return;
  }
  ASSERT_EQ(results.size(), expected.size()) << name;
  for (std::size_t i = 0; i < results.size(); ++i) {
    ASSERT_EQ(results[i].shape(), expected[i].shape()) << name;
    ASSERT_EQ(results[i].dtype(), expected[i].dtype()) << name;
    const Difference found = difference(results[i], expected[i]);
    EXPECT_TRUE(found.same_nans) << name << " result " << i;
    EXPECT_LE(found.largest, tolerance_of(expected[i].dtype())) << name << " result " << i;
  }
}

Step step_of(const bench::OperationCase& what, DType dtype) {
  return [&what, dtype](const std::vector<Tensor>& given) {
    GradientTape tape;
    const std::vector<Tensor> sources = bench::sources_of(what, given);
    for (const Tensor& source : sources) tape.watch(source);
    std::vector<Tensor> results = {what.call({given, what.shapes[0], dtype})};
    if (what.backward && !sources.empty())
      for (Tensor& gradient :
           tape.gradient(results[0], sources, {.output_gradient = bench::make_slope(results[0])}))
        results.push_back(gradient);
    return results;
  };
}

class Lowerings : public ::testing::TestWithParam<std::string> {};

TEST_P(Lowerings, ComputeWhatTheKernelsDo) {
  TANDEM_REQUIRE(!testing::first_plugin().empty(), "pjrt");
  pjrt::Client& client = testing::client_of(testing::first_plugin());
  const DType dtype = dtype_from_name(GetParam());
  const char* only = std::getenv("TANDEM_CASE");
  for (const bench::OperationCase& what : bench::operation_cases()) {
    if (only && what.name != only) continue;
    if (dtype != float32 && !what.dtypes) continue;
    const std::vector<Tensor> inputs = bench::make_inputs(what, 0, dtype);
    try {
      expect_same(client, what.name, step_of(what, dtype), inputs);
    } catch (const UnimplementedError& error) {
      ADD_FAILURE() << what.name << ": " << error.what();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(DTypes, Lowerings, ::testing::Values("float32", "bfloat16"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace tandem
