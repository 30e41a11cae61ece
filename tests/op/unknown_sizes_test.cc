// The cases of benchmarks/operation_cases_*.cc in functions that do not know sizes of their
// arguments.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "op/op.h"
#include "operation_cases.h"
#include "support/errors.h"
#include "tandem/tandem.h"

namespace tandem::unknown_operand_sizes_test {
namespace {

using Tensors = std::vector<Tensor>;
using Result = ::testing::AssertionResult;

struct Axis {
  std::size_t input;
  int axis;
};

std::vector<InputSpec> specs_of(const Tensors& inputs, const std::vector<Axis>& unknown) {
  std::vector<InputSpec> specs;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    Shape shape = inputs[i].shape();
    for (const Axis& axis : unknown)
      if (axis.input == i) shape.set(axis.axis, -1);
    specs.push_back({shape, inputs[i].dtype()});
  }
  return specs;
}

// The result, and its gradients if the case has them.
Tensors results_of(const bench::OperationCase& what, const Tensors& inputs) {
  const Tensors sources = bench::sources_of(what, inputs);
  GradientTape tape;
  for (const Tensor& source : sources) tape.watch(source);
  const Tensor result = what.call({inputs, what.shapes[0], float32});
  Tensors results = {result};
  if (what.backward && !sources.empty())
    for (Tensor& gradient : tape.gradient(result, sources)) results.push_back(std::move(gradient));
  return results;
}

Result equal_bits(const Tensors& got, const Tensors& expected) {
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (got[i].shape() != expected[i].shape())
      return ::testing::AssertionFailure() << "result " << i << " has shape " << got[i].shape()
                                           << ", not " << expected[i].shape();
    const auto a = cast(got[i], float64).to_vector<double>(),
               b = cast(expected[i], float64).to_vector<double>();
    if (!a.empty() && std::memcmp(a.data(), b.data(), a.size() * sizeof(double)) != 0)
      return ::testing::AssertionFailure() << "result " << i << " has other values";
  }
  return ::testing::AssertionSuccess();
}

// Refusals name the axis, or say that a number was computed from an unknown size.
bool names_unknown_size(const std::string& message) {
  constexpr std::string_view kReasons[] = {"to be known when the graph is made",
                                           "known sizes",
                                           "a known depth",
                                           "is not known",
                                           "a known size",
                                           "is unknown until the graph runs"};
  for (const std::string_view reason : kReasons)
    if (message.find(reason) != std::string::npos) return true;
  return false;
}

// All subsets of one to three axes.
std::vector<std::vector<Axis>> subsets_of(const Tensors& inputs) {
  std::vector<Axis> axes;
  for (std::size_t i = 0; i < inputs.size(); ++i)
    for (int axis = 0; axis < inputs[i].rank(); ++axis) axes.push_back({i, axis});
  std::vector<std::vector<Axis>> subsets;
  for (std::size_t a = 0; a < axes.size(); ++a) {
    subsets.push_back({axes[a]});
    for (std::size_t b = a + 1; b < axes.size(); ++b) {
      subsets.push_back({axes[a], axes[b]});
      for (std::size_t c = b + 1; c < axes.size(); ++c)
        subsets.push_back({axes[a], axes[b], axes[c]});
    }
  }
  return subsets;
}

TEST(UnknownOperandSizesSlow, GiveTheResultsOfKnownOnesOrAreRefusedByName) {
  std::map<std::string, int> refused;
  for (const bench::OperationCase& what : bench::operation_cases()) {
    SCOPED_TRACE(what.name);
    if (what.random) continue;
    const Tensors inputs = bench::make_inputs(what, 0, float32);
    const Tensors expected = results_of(what, inputs);
    for (const std::vector<Axis>& unknown : subsets_of(inputs)) {
      std::string axes;
      for (const Axis& axis : unknown)
        axes += " " + std::to_string(axis.input) + "/" + std::to_string(axis.axis);
      SCOPED_TRACE("unknown input/axis:" + axes);
      try {
        const auto traced = function([&](const Tensors& x) { return results_of(what, x); },
                                     {.input_signature = specs_of(inputs, unknown)});
        EXPECT_TRUE(equal_bits(traced(inputs), expected));
      } catch (const InvalidArgumentError& error) {
        EXPECT_TRUE(names_unknown_size(error.what())) << error.what();
        EXPECT_EQ(std::string(error.what()).find("-10995"), std::string::npos) << error.what();
        ++refused[what.name];
      }
    }
  }
  for (const auto& [name, count] : refused) RecordProperty("refused " + name, count);
}

// Operations that no case has, and why.
const std::map<std::string_view, std::string_view> kInNoCase = {
    {"AllFinite", "of loss scales, whose gradients have known sizes"},
    {"ApplyAdagradV2", "of variables, whose sizes are known"},
    {"ApplyAdam", "of variables, whose sizes are known"},
    {"ApplyAdamWithAmsgrad", "of variables, whose sizes are known"},
    {"ApplyCenteredRMSProp", "of variables, whose sizes are known"},
    {"ApplyCenteredRMSPropMomentum", "of variables, whose sizes are known"},
    {"ApplyGradientDescent", "of variables, whose sizes are known"},
    {"ApplyKerasMomentum", "of variables, whose sizes are known"},
    {"ApplyLamb", "of variables, whose sizes are known"},
    {"ApplyMomentum", "of variables, whose sizes are known"},
    {"ApplyRMSProp", "of variables, whose sizes are known"},
    {"ApplyRMSPropMomentum", "of variables, whose sizes are known"},
    {"AssignSlice", "in ops.AssignSlice"},
    {"BatchNormMoments", "of synchronised batch normalisation, which needs several replicas"},
    {"ElementCount", "in function.Dims"},
    {"EnsureShape", "in function.UnknownSizes"},
    {"Identity", "in function.RandomUnknownSizes"},
    {"LstmSteps", "in ops.LstmSteps"},
    {"LstmStepsGrad", "in ops.LstmSteps"},
    {"MaxPoolGradGrad", "a second derivative"},
    {"Squeeze", "in function.RandomUnknownSizes"},
    {"StepScalar", "a number that only traced updates compute"},
    {"SumToShape", "of unknown sizes only"},
};

TEST(UnknownOperandSizes, AreTriedOfEveryOperation) {
  std::set<std::string> found;
  for (const bench::OperationCase& what : bench::operation_cases()) {
    Graph graph;
    const GraphScope building(graph);
    Tensors inputs;
    for (const Tensor& input : bench::make_inputs(what, 0, float32))
      inputs.push_back(placeholder(input.dtype(), input.shape()));
    results_of(what, inputs);
    for (const Graph::Operation& operation : graph.operations()) found.emplace(operation.type());
  }
  for (const OpDef* op : all_ops())
    EXPECT_NE(found.contains(std::string(op->name)), kInNoCase.contains(op->name))
        << op->name << " needs a case in benchmarks/operation_cases_*.cc or an entry in this test";
}

}  // namespace
}  // namespace tandem::unknown_operand_sizes_test
