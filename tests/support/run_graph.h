// Runs any graph with generated inputs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "function/placer.h"
#include "graph/block.h"
#include "graph/graph.h"
#include "graph/program.h"
#include "graph/structural_ops.h"
#include "tandem/creation.h"
#include "tandem/errors.h"

namespace tandem::testing {

// The total bytes of all values; huge if one is too large.
inline std::size_t bytes_of(const Block& block) {
  constexpr std::size_t kMost = std::size_t{1} << 30;
  std::size_t total = 0;
  for (const auto& value : block.values)
    total = std::min(kMost, total + std::min(kMost, value->bytes()));
  return total;
}

// Computes `fetches` from inputs of ones; unknown sizes are 2. For small programs only. Returns
// true if it ran, false after a typed error.
inline bool run_fetches(const GraphImpl& graph, const std::vector<Node::Input>& fetches) {
  constexpr std::size_t kMostBytes = std::size_t{4} << 20;
  LowerOptions options{.fetches = fetches};
  std::vector<Tensor> feeds;
  try {
    for (const auto& node : graph.nodes()) {
      if (node->op != &kPlaceholder) continue;
      TensorType spec = node->outputs[0];
      for (int axis = 0; axis < spec.shape.rank(); ++axis)
        if (spec.shape.word(axis) < 0) spec.shape.set(axis, 2);
      if (!spec.shape.known() || spec.shape.num_elements() > std::int64_t{1} << 16) return false;
      feeds.push_back(ones(spec.shape, {.dtype = spec.dtype}));
      options.feeds.push_back({node.get(), 0});
      options.feed_specs.push_back(impl_of(feeds.back()));
      options.feed_devices.push_back(&impl_of(feeds.back()).device());
    }
    options.devices = place_graph(graph);
    options.devices_of = [](const GraphImpl& body) { return place_graph(body); };
    options.resource_of = [](const Node&) -> RefPtr<Resource> {
      throw InvalidArgumentError("no variables");
    };
    Block block = lower(graph, options);
    if (bytes_of(block) > kMostBytes) return false;
    Program(std::move(block)).run(feeds);
    return true;
  } catch (const InvalidArgumentError&) {
  } catch (const FailedPreconditionError&) {
  } catch (const UnimplementedError&) {
  } catch (const ResourceExhaustedError&) {
  }
  return false;
}

// Computes every result of every node: all together, or one by one if that fails. Returns how many
// could be computed. Skips graphs with control flow, whose loops may not end.
inline int run_all(const GraphImpl& graph) {
  std::vector<Node::Input> all;
  for (const auto& node : graph.nodes()) {
    if (node->control) return 0;
    for (std::size_t i = 0; i < node->outputs.size(); ++i)
      if (node->op != &kVarHandle) all.push_back({node.get(), static_cast<int>(i)});
  }
  if (all.size() > 4096) return 0;
  if (run_fetches(graph, all)) return static_cast<int>(all.size());
  return static_cast<int>(std::count_if(
      all.begin(), all.end(), [&](const Node::Input& each) { return run_fetches(graph, {each}); }));
}

}  // namespace tandem::testing
