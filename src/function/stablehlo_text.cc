// A traced function as text for compilers.
#include "core/status.h"
#include "function/placer.h"
#include "function/traced_function.h"
#include "graph/block.h"
#include "graph/compiled_region.h"
#include "graph/stablehlo/lower_module.h"
#include "graph/stablehlo/module_text.h"
#include "tandem/function.h"

namespace tandem::detail {
namespace {

std::vector<TensorType> feed_specs(const TracedCall& call) {
  const TracedFunction& function = *call.function;
  std::vector<TensorType> specs;
  for (std::size_t i = 0; i < function.feeds.size(); ++i)
    specs.push_back(i < call.inputs.size() ? impl_of(call.inputs[i])
                                           : function.feeds[i].node->outputs[0]);
  return specs;
}

// The modules of the parts that compiled devices run.
std::string text_of_regions(const TracedCall& call, const std::vector<DeviceImpl*>& devices) {
  const TracedFunction& function = *call.function;
  LowerOptions options{.feeds = function.feeds,
                       .feed_specs = feed_specs(call),
                       .fetches = function.fetches,
                       .devices = devices,
                       .devices_of = [](const GraphImpl& body) { return place_graph(body); },
                       .all_updates = true};
  for (std::size_t i = 0; i < function.feeds.size(); ++i)
    options.feed_devices.push_back(
        i < call.inputs.size() ? &impl_of(call.inputs[i]).device()
                               : devices[static_cast<std::size_t>(function.feeds[i].node->id)]);
  std::string text;
  for (const auto& operation : lower(*function.graph, options).operations)
    if (operation->region) text += stablehlo::text_of(operation->region->module);
  return text;
}

}  // namespace

std::string stablehlo_text(const TracedCall& call) {
  const TracedFunction& function = *call.function;
  const std::vector<DeviceImpl*> devices = place_graph(*function.graph);
  if (std::any_of(devices.begin(), devices.end(),
                  [](const DeviceImpl* device) { return runs_compiled(*device); }))
    return text_of_regions(call, devices);
  return stablehlo::text_of(stablehlo::lower_module(
      *function.graph,
      {.name = function.name,
       .nodes = stablehlo::needed_nodes(*function.graph, function.feeds, function.fetches, true),
       .feeds = function.feeds,
       .feed_specs = feed_specs(call),
       .fetches = function.fetches}));
}

}  // namespace tandem::detail
