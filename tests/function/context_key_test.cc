// Which state of the calling thread selects another trace of a function.
#include "function/context_key.h"

#include <gtest/gtest.h>

#include "runtime/generator.h"
#include "tandem/tandem.h"

namespace tandem::context_key_test {
namespace {

struct Change {
  const char* what;
  std::function<void(Context&)> make;
};

// The number of traces after a call in the present context and one after the change.
std::size_t traces_after(const Change& change) {
  const auto twice = function([](const Tensor& x) { return x + x; });
  const Tensor x = ones({2});
  twice(x);
  Context changed = context;
  change.make(changed);
  const Scoped scope(context, changed);
  twice(x);
  twice(x);
  return twice.num_traces();
}

TEST(ContextKey, HasWhatATraceDependsOn) {
  const Change changes[] = {
      {"recording", [](Context& c) { c.records = false; }},
      {"a live tape", [](Context& c) { c.tapes = 1; }},
      {"the dtype of weights", [](Context& c) { c.weight_dtype = bfloat16; }},
      {"weights of ranks", [](Context& c) { c.weighted_by_examples = true; }},
      {"training", [](Context& c) { c.training = true; }},
      {"inference", [](Context& c) { c.training = false; }},
      {"autocast", [](Context& c) { c.autocast = AutocastSettings{.caches = false}; }},
  };
  for (const Change& change : changes) EXPECT_EQ(traces_after(change), 2u) << change.what;
}

TEST(ContextKey, LacksWhatATraceDoesNotRead) {
  Generator generator;
  const std::string layer = "path";
  const Change changes[] = {
      {"the generator", [&](Context& c) { c.generator = &generator; }},
      {"the layer in messages", [&](Context& c) { c.layer = &layer; }},
      {"the worker of pipelines", [](Context& c) { c.worker = 1; }},
      {"the first element of kernels", [](Context& c) { c.first_element = 8; }},
  };
  for (const Change& change : changes) EXPECT_EQ(traces_after(change), 1u) << change.what;
}

TEST(ContextKey, HasTheDeviceScope) {
  config::set_logical_cpus(2);
  const auto twice = function([](const Tensor& x) { return x + x; });
  const Tensor x = ones({2});
  twice(x);
  {
    const DeviceScope other("/cpu:1");
    EXPECT_NE(twice(x).device().find("device:CPU:1"), std::string::npos);
  }
  EXPECT_EQ(twice.num_traces(), 2u);
}

}  // namespace
}  // namespace tandem::context_key_test
