// Compiled regions whose plug-in fails while a program runs.
#include <gtest/gtest.h>

#include <memory>

#include "support/errors.h"
#include "support/expects.h"
#include "support/fake_pjrt.h"
#include "tandem/tandem.h"

namespace tandem::region_step_test {
namespace {

// The fake does not add: a program's result is its first argument.
class FailingRegions : public ::testing::Test {
 protected:
  void SetUp() override {
    TANDEM_REQUIRE(testing::FakePlugin::is_there(), "pjrt");
    plugin = std::make_unique<testing::FakePlugin>();
    config::load_pjrt_plugin(plugin->path);
  }
  static Variable variable_there() {
    DeviceScope there("TPU:1");
    return Variable(constant({1.0f, 2.0f, 3.0f}));
  }

  std::unique_ptr<testing::FakePlugin> plugin;
};

// The step takes the variable's memory; without a result, the variable has its old value.
TEST_F(FailingRegions, VariablesKeepTheirValues) {
  Variable variable = variable_there();
  auto step = function([&] {
    DeviceScope there("TPU:1");
    variable.assign_add(ones({3}));
  });
  step();
  for (const char* failing :
       {"PJRT_LoadedExecutable_Execute", "PJRT_Client_BufferFromHostBuffer"}) {
    // On the host only, so that the step has to upload it.
    variable.assign(constant({4.0f, 5.0f, 6.0f}));
    (*plugin)->fail_in(failing, 8);
    const std::string error = testing::any_error_of([&] { step(); });
    testing::expect_parts(error, {"ResourceExhaustedError: [PJRT] ", ": it fails"});
    (*plugin)->failing.clear();
    EXPECT_EQ(variable.value().to_vector<float>(), (std::vector<float>{4, 5, 6})) << failing;
    step();
  }
}

// Calls a step `times` times in order. Returns whether it ran as a program.
bool call_in_order(detail::FunctionTraces& traces, std::size_t times, const Tensor& x,
                   Variable& variable) {
  std::vector<detail::FunctionCall> calls(times);
  for (detail::FunctionCall& call : calls) call.inputs = {x};
  return traces.run_in_order(calls, [&](const std::vector<Tensor>& inputs) {
    DeviceScope there("TPU:1");
    variable.assign_add(inputs[0]);
    return std::vector<Tensor>{inputs[0] * 2.0f};
  });
}

TEST_F(FailingRegions, CallsInOrderAreOneExecution) {
  Variable variable = variable_there();
  detail::FunctionTraces traces({.name = "step"});
  const Tensor x = ones({3}).to("TPU:1");
  for (const std::size_t times : {1u, 4u, 4u, 2u}) {
    const int before = (*plugin)->executions;
    EXPECT_TRUE(call_in_order(traces, times, x, variable));
    EXPECT_EQ((*plugin)->executions, before + 1);
  }
  EXPECT_EQ(traces.num_traces(), 1u);
}

TEST_F(FailingRegions, VariablesKeepTheirValuesAfterCallsInOrder) {
  Variable variable = variable_there();
  detail::FunctionTraces traces({.name = "step"});
  const Tensor x = ones({3}).to("TPU:1");
  for (const char* failing : {"PJRT_Client_Compile", "PJRT_LoadedExecutable_Execute"}) {
    variable.assign(constant({4.0f, 5.0f, 6.0f}));
    (*plugin)->fail_in(failing, 8);
    EXPECT_NE(testing::any_error_of([&] { call_in_order(traces, 3, x, variable); }), "");
    (*plugin)->failing.clear();
    EXPECT_EQ(variable.value().to_vector<float>(), (std::vector<float>{4, 5, 6})) << failing;
    EXPECT_TRUE(call_in_order(traces, 3, x, variable));
  }
}

// A failure that is known later is thrown where a result is read.
TEST_F(FailingRegions, ResultsReportFailures) {
  auto step = function([](const Tensor& x) {
    DeviceScope there("TPU:0");
    return x + 1.0f;
  });
  const Tensor x = ones({3});
  (*plugin)->fail_in("results", 13);
  const std::string error = testing::any_error_of([&] { step(x).to_vector<float>(); });
  testing::expect_parts(error, {"InternalError: [PJRT] computing a tensor: it fails"});
  (*plugin)->failing.clear();
  EXPECT_EQ(step(x).to_vector<float>(), (std::vector<float>{1, 1, 1}));
}

}  // namespace
}  // namespace tandem::region_step_test
