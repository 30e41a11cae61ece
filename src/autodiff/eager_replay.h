// Records a run of a traced callable operation by operation, as if it had run eagerly.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "autodiff/trace_record.h"
#include "runtime/generator.h"

namespace tandem {

// The values of the run.
struct RecordedRun {
  const KnownSizes& sizes;
  std::span<const Tensor> kept;   // as TraceRecord::kept()
  random::GeneratorState random;  // the generator's state before the run
  Device* device;                 // the default device of gradients
};

// Uses the tensors that the run has kept. It computes no operation of the run again.
class EagerReplay {
 public:
  // `sources`: the tensors of record.sources(), with their specs and gradient edges.
  EagerReplay(const TraceRecord& record, const RecordedRun& run, std::span<const Tensor> sources);

  // The gradient edges of record.roots() and of record.sources().
  GradEdge root(std::size_t i) const { return edge_of(impl_of(record_.roots()[i].tensor).grad); }
  const std::vector<GradEdge>& sources() const { return sources_; }

 private:
  GradEdge edge_of(const GradEdge& traced) const;
  Tensor value_of(const Tensor& saved) const;
  Tensor value_of(const Node::Input& tensor) const;
  std::shared_ptr<const void> attrs_of(const OpDef& op,
                                       const std::shared_ptr<const void>& traced) const;
  void replay(const OpNode& node);

  const TraceRecord& record_;
  const RecordedRun& run_;
  std::vector<GradEdge> sources_;
  std::map<std::pair<const GradNodeBase*, int>, GradEdge> edges_;  // by the edges of the trace
};

// A tensor with a spec and an edge but without elements, for record().
Tensor without_elements(const TensorSpec& spec, GradEdge edge = {});

}  // namespace tandem
