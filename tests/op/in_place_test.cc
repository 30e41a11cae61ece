// Operations whose result may have the memory of an input compute the same in it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <set>
#include <string_view>
#include <vector>

#include "graph/graph_support.h"
#include "op/op.h"
#include "operation_cases.h"

namespace tandem::in_place_test {
namespace {

// Operations whose result is bool and whose operands are numbers, and one with a test of its own.
const std::set<std::string_view> kWithoutCase = {
    "Equal",           "EqualScalar", "Greater",  "GreaterEqual", "GreaterEqualScalar",
    "GreaterScalar",   "IsFinite",    "IsNan",    "Less",         "LessEqual",
    "LessEqualScalar", "LessScalar",  "NotEqual", "LstmSteps"};

std::vector<std::byte> some_values(const TensorType& spec, std::uint32_t seed) {
  std::mt19937 random(seed);
  const auto size = static_cast<std::size_t>(spec.shape.num_elements());
  std::vector<double> numbers(size);
  for (double& number : numbers)
    number = is_floating(spec.dtype) ? 1.0 + static_cast<double>(random() % 64) / 16.0
                                     : static_cast<double>(random() % 2);
  const Tensor tensor = constant(numbers, {.dtype = spec.dtype, .shape = spec.shape});
  std::vector<std::byte> bytes(size * size_of(spec.dtype));
  if (!bytes.empty()) std::memcpy(bytes.data(), impl_of(tensor).data(), bytes.size());
  return bytes;
}

// The bytes of the results, of which the first is in the memory of input `shared` (-1: of none).
std::vector<std::vector<std::byte>> run(const BlockOperation& operation, int shared) {
  std::vector<std::vector<std::byte>> inputs, outputs;
  KernelContext context;
  context.op = operation.op;
  context.attrs_data = operation.attrs.get();
  for (const Value* input : operation.inputs)
    inputs.push_back(some_values(input->spec, static_cast<std::uint32_t>(inputs.size())));
  for (std::size_t i = 0; i < inputs.size(); ++i)
    context.inputs.push_back(
        {inputs[i].data(), operation.inputs[i]->spec.dtype, operation.inputs[i]->spec.shape});
  for (const Value* output : operation.outputs) outputs.emplace_back(output->bytes());
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    auto& memory = i == 0 && shared >= 0 ? inputs[static_cast<std::size_t>(shared)] : outputs[i];
    context.outputs.push_back(
        {memory.data(), operation.outputs[i]->spec.dtype, operation.outputs[i]->spec.shape});
  }
  operation.op->cpu_kernel(context);
  if (shared >= 0) outputs[0] = inputs[static_cast<std::size_t>(shared)];
  return outputs;
}

// Runs `operation` in each memory that it may share.
bool check(const BlockOperation& operation) {
  bool any = false;
  const std::size_t inputs = operation.has(kElementwise) ? operation.inputs.size() : 1;
  for (std::size_t i = 0; i < std::min(inputs, operation.inputs.size()); ++i) {
    const TensorType &input = operation.inputs[i]->spec, &output = operation.outputs[0]->spec;
    if (input.dtype != output.dtype || !(input.shape == output.shape)) continue;
    any = true;
    EXPECT_EQ(run(operation, static_cast<int>(i)), run(operation, -1))
        << operation.op->name << " in the memory of input " << i << " of "
        << operation.inputs.size() << ", " << name_of(operation.outputs[0]->spec.dtype);
  }
  return any;
}

TEST(InPlace, OperationsComputeTheSameInTheMemoryOfAnyInput) {
  std::set<std::string_view> checked;
  for (const bench::OperationCase& what : bench::operation_cases())
    for (const DType dtype : {float32, float64, bfloat16, float16}) {
      if (!what.dtypes && dtype != float32) continue;
      const bool wide = std::any_of(what.inputs.begin(), what.inputs.end(),
                                    [](const bench::Input& input) { return input.wide; });
      if (wide && dtype == float64) continue;  // its inputs in float32 are for 16-bit types
      SCOPED_TRACE(what.name);
      const std::vector<Tensor> inputs = bench::make_inputs(what, 0, dtype);
      const Block block = block_of(inputs, [&](const std::vector<Tensor>& in) {
        const std::vector<Tensor> sources = bench::sources_of(what, in);
        GradientTape tape;
        for (const Tensor& source : sources) tape.watch(source);
        std::vector<Tensor> results = {what.call({in, what.shapes[0], dtype})};
        if (what.backward && !sources.empty())
          for (const Tensor& gradient : tape.gradient(results[0], sources))
            results.push_back(gradient);
        return results;
      });
      for (const auto& operation : block.operations)
        if (operation->has(kInPlace) && !operation->has(kStateful) && !operation->attr_update &&
            !operation->runs_alone() && operation->op->cpu_kernel && check(*operation))
          checked.insert(operation->op->name);
    }
  for (const OpDef* op : all_ops()) {
    if ((op->traits & kInPlace) == 0 || (op->traits & kStateful) != 0) continue;
    EXPECT_NE(checked.contains(op->name), kWithoutCase.contains(op->name)) << op->name;
  }
}

}  // namespace
}  // namespace tandem::in_place_test
