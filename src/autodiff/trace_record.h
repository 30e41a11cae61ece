// What the operations of a trace have recorded, taken stock of: where gradients come from, where
// they go, and which tensors they read.
#pragma once

#include <span>
#include <vector>

#include "graph/graph.h"
#include "op/record.h"

namespace tandem {

class TraceRecord {
 public:
  // What gradients go to: an argument, or what the callable captured.
  struct Source {
    GradEdge edge;             // in this record
    int argument = -1;         // which one
    Node* captured = nullptr;  // or: a Const or a VarHandleOp
    // The tensor in a run, with the edge that it then has.
    Tensor in_run(std::span<const Tensor> arguments) const;
  };
  // A tensor that the gradients of operations read, and where a run has it.
  struct Kept {
    Node::Input tensor;
    int argument = -1;         // the argument itself
    Node* variable = nullptr;  // or: the elements of this variable, which the trace does not write
    int fetch = -1;            // or: fetched by the run
    Tensor in_run(std::span<const Tensor> arguments, std::span<const Tensor> fetched) const;
  };
  // A result that gradients come from.
  struct Root {
    std::size_t output = 0;
    Tensor tensor;
  };

  // `arguments`, `outputs`: symbolic.
  TraceRecord(const GraphImpl& graph, std::span<const Tensor> arguments,
              std::span<const Tensor> outputs);

  const std::vector<Root>& roots() const { return roots_; }
  const std::vector<Source>& sources() const { return sources_; }
  const std::vector<Kept>& kept() const { return kept_; }
  const std::vector<Node::Input>& fetches() const { return fetches_; }
  // The recorded operations, earliest first.
  const std::vector<RefPtr<OpNode>>& operations() const { return operations_; }

 private:
  void find_roots(std::span<const Tensor> outputs);
  void find_sources(const GraphImpl& graph, std::span<const Tensor> arguments);
  void find_kept(const GraphImpl& graph, std::span<const Tensor> arguments);

  std::vector<Root> roots_;
  std::vector<RefPtr<OpNode>> operations_;
  std::vector<Source> sources_;
  std::vector<Kept> kept_;
  std::vector<Node::Input> fetches_;
};

}  // namespace tandem
