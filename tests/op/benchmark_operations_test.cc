// The operations that scripts/bench compares with PyTorch's: their cases run, and no operation is
// forgotten.
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <string_view>

#include "op/op.h"
#include "operation_cases.h"
#include "tandem/tandem.h"

namespace tandem::benchmark_operations_test {
namespace {

// Operations without a case, and why.
const std::map<std::string_view, std::string_view> kWithoutCase = {
    {"AllFinite", "of loss scales, which have it without a public function"},
    {"ApplyAdagradV2", "updates are measured in training steps"},
    {"ApplyAdam", "updates are measured in training steps"},
    {"ApplyAdamWithAmsgrad", "updates are measured in training steps"},
    {"ApplyCenteredRMSProp", "updates are measured in training steps"},
    {"ApplyCenteredRMSPropMomentum", "updates are measured in training steps"},
    {"ApplyGradientDescent", "updates are measured in training steps"},
    {"ApplyKerasMomentum", "updates are measured in training steps"},
    {"ApplyLamb", "updates are measured in training steps"},
    {"ApplyMomentum", "updates are measured in training steps"},
    {"ApplyRMSProp", "updates are measured in training steps"},
    {"ApplyRMSPropMomentum", "updates are measured in training steps"},
    {"AssignSlice", "of caches of keys and values, which have it without a public function"},
    {"BatchNormMoments", "of synchronised batch normalisation, which needs several replicas"},
    {"ElementCount", "a number that only traced functions compute"},
    {"LstmSteps", "measured in training steps"},
    {"LstmStepsGrad", "measured in training steps"},
    {"MaxPoolGradGrad", "a second derivative"},
    {"StepScalar", "a number that only traced updates compute"},
    {"SumToShape", "of graphs that do not know their sizes"},
};

// The operations that the passes of a case run.
void run_case(const bench::OperationCase& what, DType dtype, std::set<std::string>& ran) {
  const std::vector<Tensor> inputs = bench::make_inputs(what, 0, dtype);
  const std::vector<Tensor> sources = bench::sources_of(what, inputs);
  profiler::start({});
  {
    GradientTape tape;
    for (const Tensor& source : sources) tape.watch(source);
    const Tensor result = what.call({inputs, what.shapes[0], dtype});
    if (what.backward && !sources.empty()) {
      for (const Tensor& gradient :
           tape.gradient(result, sources, {.output_gradient = bench::make_slope(result)})) {
        ASSERT_TRUE(gradient.defined());
        cast(gradient, float32).to_vector<float>();  // waits for the device
      }
    } else {
      cast(result, float32).to_vector<float>();
    }
  }
  for (const profiler::OperationTotal& total : profiler::stop().totals) ran.insert(total.name);
}

TEST(BenchmarkOperations, CoverEveryOperationThatHasNoReasonToBeLeftOut) {
  std::set<std::string> ran;
  for (const bench::OperationCase& what : bench::operation_cases()) {
    SCOPED_TRACE(what.name);
    run_case(what, float32, ran);
    if (what.dtypes) run_case(what, bfloat16, ran);
  }
  for (const OpDef* op : all_ops()) {
    if ((op->traits & kView) != 0) continue;  // has no kernel
    EXPECT_NE(ran.contains(std::string(op->name)), kWithoutCase.contains(op->name))
        << op->name << " needs a case in benchmarks/operation_cases_*.cc or an entry in this test";
  }
  for (const auto& [name, reason] : kWithoutCase)
    EXPECT_NE(find_op(name), nullptr) << name << ", " << reason;
}

TEST(BenchmarkOperations, HaveNamesOfTheirOwnAndAnExpressionForPyTorch) {
  std::set<std::string> names;
  for (const bench::OperationCase& what : bench::operation_cases()) {
    EXPECT_TRUE(names.insert(what.name).second) << what.name;
    EXPECT_FALSE(what.torch.empty()) << what.name;
  }
}

}  // namespace
}  // namespace tandem::benchmark_operations_test
