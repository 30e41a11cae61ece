// The benchmark cases of the operations through a PJRT plug-in: they compute what the CPU's kernels
// compute.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <string_view>

#include "graph/stablehlo/lowering.h"
#include "op/lowered_run.h"
#include "operation_cases.h"
#include "tandem/tandem.h"

namespace tandem::stablehlo_test {
namespace {

using testing::LoweredOptions, testing::Tensors;

// Cases whose results are small beside the numbers that they are computed from.
LoweredOptions options_of(const bench::OperationCase& what) {
  if (what.name == "reduce_sum" || what.name == "reduce_mean")  // of 4096 numbers around 0
    return {.sums = 1024.0};
  if (what.name == "reduce_prod") return {.ulps = 512.0};  // rounds 4096 times
  return {};
}

Tensors forward_and_backward(const bench::OperationCase& what, const Tensors& given, DType dtype) {
  GradientTape tape;
  const Tensors sources = bench::sources_of(what, given);
  for (const Tensor& source : sources) tape.watch(source);
  Tensors results = {what.call({given, what.shapes[0], dtype})};
  if (what.backward && !sources.empty())
    for (Tensor& gradient : testing::gradients_of(tape, results[0], sources))
      results.push_back(std::move(gradient));
  return results;
}

// The cases of operations that have no lowering (kWithoutLowering).
const std::set<std::string_view> kCasesWithoutLowering = {
    "cholesky", "ctc", "eigvalsh", "pinv", "qr", "slogdet", "solve", "solve_triangular", "svdvals"};

void expect_cases(DType dtype, const std::string& plugin) {
  for (const bench::OperationCase& what : bench::operation_cases()) {
    if (kCasesWithoutLowering.contains(what.name)) continue;
    if (dtype != float32 && !what.dtypes) continue;
    Tensors inputs = bench::make_inputs(what, 0, dtype);
    if (dtype == float64)  // some cases have parameters that are float32 in all other dtypes
      for (Tensor& input : inputs)
        if (input.dtype() == float32) input = cast(input, float64);
    LoweredOptions options = options_of(what);
    options.plugin = plugin;
    SCOPED_TRACE(what.name);
    testing::expect_lowered(
        what.name, [&](const Tensors& given) { return forward_and_backward(what, given, dtype); },
        inputs, options);
  }
}

class LoweringsSlow : public ::testing::TestWithParam<std::string> {};

TEST_P(LoweringsSlow, ComputeWhatTheKernelsDo) {
  TANDEM_REQUIRE(!testing::first_plugin().empty(), "pjrt");
  expect_cases(dtype_from_name(GetParam()), testing::first_plugin());
}

INSTANTIATE_TEST_SUITE_P(DTypes, LoweringsSlow,
                         ::testing::Values("float32", "bfloat16", "float16", "float64"),
                         [](const auto& info) { return info.param; });

TEST(LoweringsOfCasesSlow, ComputeWhatTheKernelsDoOnALaterPlugin) {
  TANDEM_REQUIRE(!testing::second_plugin().empty(), "pjrt");
  expect_cases(float32, testing::second_plugin());
}

// These reach the gradients of gradients, such as MaxPoolGradGrad.
TEST(LoweringsOfCasesSlow, ComputeSecondDerivatives) {
  TANDEM_REQUIRE(!testing::first_plugin().empty(), "pjrt");
  for (const bench::OperationCase& what : bench::operation_cases()) {
    if (!what.backward || what.random || kCasesWithoutLowering.contains(what.name)) continue;
    const testing::Step step = [&](const Tensors& given) {
      const Tensors sources = bench::sources_of(what, given);
      GradientTape outer, inner;
      for (const Tensor& source : sources) {
        outer.watch(source);
        inner.watch(source);
      }
      const Tensor result = what.call({given, what.shapes[0], float32});
      Tensors first = testing::gradients_of(inner, result, sources);
      Tensor sum = zeros({});
      for (const Tensor& gradient : first)
        sum = sum + reduce_sum(gradient * testing::slope_of(gradient));
      for (Tensor& second : outer.gradient(sum, sources))
        if (second.defined()) first.push_back(std::move(second));
      return first;
    };
    SCOPED_TRACE(what.name);
    testing::expect_lowered(what.name, step, bench::make_inputs(what, 0, float32));
  }
}

// Operations without a lowering, and why.
constexpr std::string_view kLapack = "LAPACK computes it on the host",
                           kOnHost = "a loop over times on the host",
                           kOnCpus = "layers have it on CPUs alone";
const std::map<std::string_view, std::string_view> kWithoutLowering = {
    {"CTCLoss", kOnHost},          {"CTCLossGrad", kOnHost},
    {"Cholesky", kLapack},         {"LogMatrixDeterminant", kLapack},
    {"LstmSteps", kOnCpus},        {"LstmStepsGrad", kOnCpus},
    {"MatrixSolve", kLapack},      {"MatrixTriangularSolve", kLapack},
    {"PseudoInverse", kLapack},    {"Qr", kLapack},
    {"SelfAdjointEigV2", kLapack}, {"Svd", kLapack},
};

TEST(Lowerings, ExistForEveryOperationThatHasNoReasonToBeLeftOut) {
  for (const OpDef* op : all_ops())
    EXPECT_NE(stablehlo::lowering_of(*op) != nullptr, kWithoutLowering.contains(op->name))
        << op->name << " needs a lowering in src/ops/*/*_stablehlo.cc or an entry in this test";
}

}  // namespace
}  // namespace tandem::stablehlo_test
