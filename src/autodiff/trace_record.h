// A summary of the operations that a trace has recorded: the roots and sources of gradients, and
// the tensors that gradients read.
#pragma once

#include <span>
#include <vector>

#include "graph/graph.h"
#include "op/record.h"

namespace tandem {

class TraceRecord {
 public:
  // A tensor that receives a gradient: an argument or a captured tensor.
  struct TracedSource {
    GradEdge edge;             // in this record
    int argument = -1;         // index of the argument, or -1
    Node* captured = nullptr;  // the Const or VarHandleOp of a captured tensor
    // The tensor in a run, with its gradient edge.
    Tensor in_run(std::span<const Tensor> arguments) const;
  };
  // A tensor that gradients read, and where to find it in a run. One of the fields is set.
  struct KeptTensor {
    Node::Input tensor;
    int argument = -1;         // index of the argument
    Node* variable = nullptr;  // a variable that the trace does not write
    int fetch = -1;            // index of a fetch of the run
    Tensor in_run(std::span<const Tensor> arguments, std::span<const Tensor> fetched) const;
  };
  // An output that has a gradient.
  struct RootOutput {
    std::size_t output = 0;
    Tensor tensor;
  };

  // `arguments`, `outputs`: symbolic.
  TraceRecord(const GraphImpl& graph, std::span<const Tensor> arguments,
              std::span<const Tensor> outputs);

  const std::vector<RootOutput>& roots() const { return roots_; }
  const std::vector<TracedSource>& sources() const { return sources_; }
  const std::vector<KeptTensor>& kept() const { return kept_; }
  const std::vector<Node::Input>& fetches() const { return fetches_; }
  // The recorded operations, earliest first.
  const std::vector<RefPtr<OpNode>>& operations() const { return operations_; }

 private:
  void find_roots(std::span<const Tensor> outputs);
  void find_sources(const GraphImpl& graph, std::span<const Tensor> arguments);
  void find_kept(const GraphImpl& graph, std::span<const Tensor> arguments);

  std::vector<RootOutput> roots_;
  std::vector<RefPtr<OpNode>> operations_;
  std::vector<TracedSource> sources_;
  std::vector<KeptTensor> kept_;
  std::vector<Node::Input> fetches_;
};

}  // namespace tandem
