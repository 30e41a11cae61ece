#include "op/lowered_run.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "device/device_manager.h"
#include "function/traced_function.h"
#include "graph/control_flow.h"
#include "graph/stablehlo/lower_module.h"
#include "graph/stablehlo/module_text.h"
#include "graph/stablehlo/run_numbers.h"
#include "tandem/tandem.h"
#include "tensor/tensor_impl.h"

namespace tandem::testing {
namespace {

using stablehlo::Module, stablehlo::Parameter;

Module lower(const detail::TracedCall& call, const std::string& name) {
  const TracedFunction& function = *call.function;
  stablehlo::ModuleOptions options{
      .name = name,
      .nodes = stablehlo::needed_nodes(*function.graph, function.feeds, function.fetches, true),
      .feeds = function.feeds,
      .fetches = function.fetches};
  for (const Tensor& input : call.inputs) options.feed_specs.push_back(impl_of(input));
  return stablehlo::lower_module(*function.graph, options);
}

// --- running a module ---

std::size_t bytes_of(const TensorType& spec) {
  return static_cast<std::size_t>(spec.shape.num_elements()) * size_of(spec.dtype);
}

std::vector<std::byte> copied(const void* elements, const TensorType& spec) {
  std::vector<std::byte> bytes(bytes_of(spec) + 1);  // never empty
  std::memcpy(bytes.data(), elements, bytes_of(spec));
  return bytes;
}

// The elements of a parameter in the next run.
std::vector<std::byte> elements_of(const Module& module, const Parameter& parameter,
                                   const Tensors& inputs) {
  using Kind = Parameter::Kind;
  const TensorType& spec = parameter.spec;
  const auto same = [](const Node& node) -> const Node& { return node; };
  const auto of_tensor = [&](const Tensor& tensor) { return copied(impl_of(tensor).data(), spec); };
  switch (parameter.kind) {
    case Kind::kFeed: return of_tensor(inputs.at(parameter.index));
    case Kind::kVariable: return of_tensor(parameter.node->resource->value());
    case Kind::kConstant:
      return parameter.node->value.defined() ? of_tensor(parameter.node->value)
                                             : copied(parameter.node->literal.data(), spec);
    case Kind::kNumbers: {
      const std::vector<double> numbers = stablehlo::numbers_of_run(module.numbers, same);
      return copied(std::vector<float>(numbers.begin(), numbers.end()).data(), spec);
    }
    case Kind::kDoubles:
      return copied(stablehlo::numbers_of_run(module.doubles, same).data(), spec);
    case Kind::kKeys: return copied(stablehlo::keys_of_run(module, same).data(), spec);
  }
  return {};
}

std::unique_ptr<pjrt::Executable> compile(pjrt::Client& client, const Module& module) {
  pjrt::CompileOptions options{
      .name = module.name, .devices = {0}, .parameters = {}, .results = {}};
  for (const Parameter& parameter : module.parameters)
    options.parameters.push_back({parameter.spec.dtype, parameter.spec.shape});
  for (const TensorType& spec : module.fetches) options.results.push_back({spec.dtype, spec.shape});
  for (const std::size_t written : module.written) {
    options.parameters[written].donated = true;
    options.results.push_back(options.parameters[written]);
  }
  for (std::size_t i = 0; i < module.num_counts(); ++i)
    options.results.push_back({DType::kInt64, Shape::scalar()});
  return client.compile(stablehlo::text_of(module), options);
}

// All results of the module.
Tensors run(pjrt::Client& client, pjrt::Executable& executable, const Module& module,
            const Tensors& inputs) {
  std::vector<std::shared_ptr<pjrt::Buffer>> arguments;
  for (const Parameter& parameter : module.parameters) {
    const auto kept =
        std::make_shared<std::vector<std::byte>>(elements_of(module, parameter, inputs));
    arguments.push_back(
        client.from_host(kept->data(), parameter.spec.dtype, parameter.spec.shape, 0, kept));
  }
  Tensors results;
  const std::vector<pjrt::Executable::Buffers> outputs = executable.run({std::move(arguments)});
  for (const auto& buffer : outputs.at(0)) {
    std::vector<std::byte> bytes(bytes_of({buffer->dtype(), buffer->shape()}) + 1);
    buffer->to_host(bytes.data(), bytes.size());
    results.push_back(
        from_host(DeviceManager::get().host(), buffer->shape(), buffer->dtype(), bytes.data()));
  }
  return results;
}

// --- comparing results ---

// How many random operations the last run on the CPU ran in control flow.
Tensor count_of(const Node& node) {
  const std::uint64_t before = node.random_before ? node.random_before->total() : 0;
  return constant(static_cast<std::int64_t>(node.control->random->total() - before),
                  {.dtype = int64});
}

// The distance between numbers around 1.
double unit_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat64: return 0x1p-52;
    case DType::kFloat32: return 0x1p-23;
    case DType::kFloat16: return 0x1p-10;
    case DType::kBFloat16: return 0x1p-7;
    default: return 0.0;
  }
}

void expect_near(const Tensor& got, const Tensor& expected, const LoweredOptions& options,
                 const std::string& what) {
  ASSERT_EQ(got.dtype(), expected.dtype()) << what;
  ASSERT_EQ(got.shape(), expected.shape()) << what;
  const DType dtype = expected.dtype();
  const double unit = unit_of(dtype), unit_of_sums = std::min(unit, unit_of(float32));
  const std::vector<double> x = cast(got, float64).to_vector<double>(),
                            y = cast(expected, float64).to_vector<double>();
  double largest = 0.0;
  for (const double number : y)
    if (std::isfinite(number)) largest = std::max(largest, std::fabs(number));
  for (std::size_t i = 0; i < y.size(); ++i) {
    if (x[i] == y[i] || (std::isnan(x[i]) && std::isnan(y[i]))) continue;
    const double bound =
        options.ulps * unit * std::fabs(y[i]) + options.sums * unit_of_sums * largest;
    ASSERT_LE(std::fabs(x[i] - y[i]), bound)
        << what << ": element " << i << " is " << x[i] << ", expected " << y[i];
  }
}

std::vector<InputSpec> signature_of(const Tensors& inputs, const LoweredOptions& options) {
  std::vector<InputSpec> signature;
  if (!options.traces_sizes) return signature;
  for (const Tensor& input : inputs) {
    Shape shape = input.shape();
    if (shape.rank() > 0) shape.set(0, -1);
    signature.push_back({shape, input.dtype()});
  }
  return signature;
}

}  // namespace

void expect_lowered(const std::string& name, const Step& step, const Tensors& inputs,
                    const LoweredOptions& options) {
  pjrt::Client& client = client_of(options.plugin);
  const auto on_cpu =
      function(step, {.name = name, .input_signature = signature_of(inputs, options)});
  const detail::TracedCall call = on_cpu.trace(inputs);
  const Module module = lower(call, name);
  const std::unique_ptr<pjrt::Executable> executable = compile(client, module);
  for (int i = 0; i < options.runs; ++i) {
    const Tensors results = run(client, *executable, module, inputs);
    Tensors counts;
    for (Resource* counter : module.counters) counts.push_back(counter->value() * 1.0);
    Tensors expected = on_cpu(inputs);
    for (const std::size_t written : module.written)
      expected.push_back(module.parameters[written].node->resource->value());
    for (const Node* counted : module.counted) expected.push_back(count_of(*counted));
    for (std::size_t k = 0; k < counts.size(); ++k)
      expected.push_back(module.counters[k]->value() - counts[k]);
    ASSERT_EQ(results.size(), expected.size()) << name;
    for (std::size_t k = 0; k < results.size(); ++k)
      expect_near(results[k], expected[k], options,
                  fmt::format("{}, run {}, result {}", name, i, k));
  }
}

Tensors run_lowered(const std::string& name, const Step& step, const Tensors& inputs) {
  const Module module = lower(function(step, {.name = name}).trace(inputs), name);
  pjrt::Client& client = client_of(first_plugin());
  const std::unique_ptr<pjrt::Executable> executable = compile(client, module);
  return run(client, *executable, module, inputs);
}

Tensor slope_of(const Tensor& result) {
  // From -57 / 64 to 63 / 64, which all dtypes represent, so that slopes are the same for each.
  const Tensor positions = range(0.0, static_cast<double>(result.size()));
  const Tensor mixed = floor_mod(positions * 37.0, full({}, 61.0));
  return cast(reshape((mixed * 2.0 - 57.0) / 64.0, result.shape()), result.dtype());
}

Tensors gradients_of(GradientTape& tape, const Tensor& result, const Tensors& sources) {
  Tensors gradients;
  for (Tensor& gradient : tape.gradient(result, sources, {.output_gradient = slope_of(result)}))
    if (gradient.defined()) gradients.push_back(std::move(gradient));
  return gradients;
}

void expect_lowered(const std::vector<LoweredCase>& cases) {
  for (const LoweredCase& each : cases) {
    SCOPED_TRACE(each.name);
    const Step step = [&](const Tensors& inputs) {
      GradientTape tape;
      Tensors sources;
      for (const Tensor& input : inputs)
        if (is_floating(input.dtype())) sources.push_back(input);
      for (const Tensor& source : sources) tape.watch(source);
      Tensors results = {each.call(inputs)};
      if (is_floating(results[0].dtype()))
        for (Tensor& gradient : gradients_of(tape, results[0], sources))
          results.push_back(std::move(gradient));
      return results;
    };
    expect_lowered(each.name, step, each.inputs, each.options);
  }
}

}  // namespace tandem::testing
