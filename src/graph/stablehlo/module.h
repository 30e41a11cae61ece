// Lowers a graph to a StableHLO module, which any PJRT plug-in compiles.
#pragma once

#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/stablehlo/lowering.h"

namespace tandem::stablehlo {

// An argument of the module's function.
struct Parameter {
  enum class Kind {
    kFeed,      // feed number `index`
    kVariable,  // the elements of the variable of `node`, a VarHandleOp
    kConstant,  // the elements of `node`, a Const
    kNumbers,   // Module::numbers, float32
    kDoubles,   // Module::doubles, float64
    kKeys,      // Module::keys, int64 [keys, 4]: the parts of KeyValues, as bits
  };
  Kind kind = Kind::kFeed;
  TensorSpec spec;
  std::size_t index = 0;
  const Node* node = nullptr;
};

// The function returns the fetches, and then the new elements of the written variables. The
// parameter of a written variable is donated: its memory becomes that of the result.
struct Module {
  std::string name;
  std::string text;
  std::vector<Parameter> parameters;
  std::vector<TensorSpec> fetches;
  std::vector<std::size_t> written;  // parameters
  std::vector<RunNumber> numbers, doubles;
  std::vector<RunKey> keys;
};

struct ModuleOptions {
  std::string name = "module";  // in messages; other characters than letters become '_' in the text
  int num_replicas = 1;         // that run the module, with collectives between them
  std::vector<const Node*> nodes;      // in program order; needed_nodes() finds them
  std::vector<Node::Input> feeds;      // the other tensors that the nodes use
  std::vector<TensorSpec> feed_specs;  // fully defined
  std::vector<Node::Input> fetches;
  std::vector<const Node*> differing;  // constants that differ between the replicas
  KnownSizes* sizes = nullptr;         // adds those that it infers; may be null
};

// The nodes that the fetches depend on, and with `updates` all that have effects, without those
// before the feeds.
std::vector<const Node*> needed_nodes(const GraphImpl& graph, std::span<const Node::Input> feeds,
                                      std::span<const Node::Input> fetches, bool updates);

// Throws UnimplementedError, which names the operation and its node, for an operation without a
// lowering.
Module lower_module(const GraphImpl& graph, const ModuleOptions& options);

}  // namespace tandem::stablehlo
