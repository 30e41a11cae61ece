// A traced function as text for compilers.
#include "graph/stablehlo/module.h"
#include "runtime/traced_function.h"
#include "tandem/function.h"

namespace tandem::detail {

std::string stablehlo_text(const TracedCall& call) {
  const TracedFunction& function = *call.function;
  stablehlo::ModuleOptions options{
      .name = function.name,
      .nodes = stablehlo::needed_nodes(*function.graph, function.feeds, function.fetches, true),
      .feeds = function.feeds,
      .fetches = function.fetches};
  for (std::size_t i = 0; i < function.feeds.size(); ++i)
    options.feed_specs.push_back(i < call.inputs.size() ? impl_of(call.inputs[i])
                                                        : function.feeds[i].node->outputs[0]);
  return stablehlo::lower_module(*function.graph, options).text;
}

}  // namespace tandem::detail
