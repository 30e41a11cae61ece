// Blocks of functions that use the API.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "device/device_manager.h"
#include "function/placer.h"
#include "graph/graph.h"
#include "graph/program.h"
#include "graph/structural_ops.h"
#include "tandem/tandem.h"

namespace tandem {

// The block of `body` for arguments with the specs of `arguments`, before any pass.
inline Block block_of(const std::vector<Tensor>& arguments,
                      const std::function<std::vector<Tensor>(const std::vector<Tensor>&)>& body) {
  const auto graph = make_ref<GraphImpl>();
  const Scoped building(context.graph, graph.get());
  LowerOptions options{.all_updates = true};
  std::vector<Tensor> symbols;
  for (const Tensor& argument : arguments) {
    Node& node = graph->add(kPlaceholder, SpecAttrs{argument.dtype(), argument.shape()}, {});
    options.feeds.push_back({&node, 0});
    options.add_given(argument);
    symbols.push_back(graph->tensor(node));
  }
  for (const Tensor& result : body(symbols)) options.fetches.push_back(graph->input_of(result));
  const Scoped at_once(context.graph, nullptr);
  options.devices = place_graph(*graph);
  options.devices_of = [](const GraphImpl& body) { return place_graph(body); };
  return lower(*graph, options);
}

inline std::vector<std::string> names_of(const Block& block) {
  std::vector<std::string> names;
  for (const auto& operation : block.operations) names.emplace_back(operation->op->name);
  return names;
}

}  // namespace tandem
