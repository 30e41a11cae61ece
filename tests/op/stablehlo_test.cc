// Lowers the benchmark cases of the operations to StableHLO.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <string>

#include "graph/stablehlo/module.h"
#include "operation_cases.h"
#include "runtime/traced_function.h"
#include "tandem/tandem.h"

namespace tandem {
namespace {

TEST(StableHloDump, Cases) {
  const char* folder = std::getenv("TANDEM_STABLEHLO_DUMP");
  if (!folder) GTEST_SKIP();
  std::map<std::string, int> missing;
  int lowered = 0;
  for (const bench::OperationCase& what : bench::operation_cases()) {
    const std::vector<Tensor> inputs = bench::make_inputs(what, 0, float32);
    const auto step = function([&](const std::vector<Tensor>& given) {
      GradientTape tape;
      const std::vector<Tensor> sources = bench::sources_of(what, given);
      for (const Tensor& source : sources) tape.watch(source);
      std::vector<Tensor> results = {what.call({given, what.shapes[0], float32})};
      if (what.backward && !sources.empty())
        for (Tensor& gradient :
             tape.gradient(results[0], sources, {.output_gradient = bench::make_slope(results[0])}))
          results.push_back(gradient);
      return results;
    });
    const detail::TracedCall traced = step.trace(inputs);
    stablehlo::ModuleOptions options{
        .name = what.name,
        .nodes = stablehlo::needed_nodes(*traced.function->graph, traced.function->feeds,
                                         traced.function->fetches, true),
        .feeds = traced.function->feeds,
        .fetches = traced.function->fetches};
    for (const Tensor& input : traced.inputs) options.feed_specs.push_back(impl_of(input));
    try {
      const stablehlo::Module module = lower_module(*traced.function->graph, options);
      std::ofstream(std::string(folder) + "/" + what.name + ".mlir") << module.text;
      ++lowered;
    } catch (const UnimplementedError& error) {
      const std::string text = error.what();
      ++missing[text.substr(0, text.find(']') + 1)];
    }
  }
  for (const auto& [name, count] : missing) std::printf("missing %s %d\n", name.c_str(), count);
  std::printf("lowered %d of %zu\n", lowered, bench::operation_cases().size());
}

}  // namespace
}  // namespace tandem
