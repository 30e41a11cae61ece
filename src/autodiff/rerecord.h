// A run of a traced callable, recorded operation by operation as if it had been eager.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "autodiff/trace_record.h"
#include "runtime/generator.h"

namespace tandem {

// What is known of the run.
struct RecordedRun {
  const KnownSizes& sizes;
  std::span<const Tensor> kept;   // as TraceRecord::kept()
  random::GeneratorState random;  // the generator's state before the run
  Device* device;                 // where gradients are computed that asked for no device
};

// Needs nothing but what the run has kept: no operation of it is computed again.
class Rerecorded {
 public:
  // `sources`: as record.sources(), for their specs and for the edges that lead on behind them.
  Rerecorded(const TraceRecord& record, const RecordedRun& run, std::span<const Tensor> sources);

  // Where gradients come from, as record.roots(), and where they go, as record.sources().
  GradEdge root(std::size_t i) const { return edge_of(impl_of(record_.roots()[i].tensor).grad); }
  const std::vector<GradEdge>& sources() const { return sources_; }

 private:
  GradEdge edge_of(const GradEdge& traced) const;
  Tensor value_of(const Tensor& saved) const;
  Tensor value_of(const Node::Input& tensor) const;
  std::shared_ptr<const void> attrs_of(const OpDef& op,
                                       const std::shared_ptr<const void>& traced) const;
  void rerecord(const OpNode& node);

  const TraceRecord& record_;
  const RecordedRun& run_;
  std::vector<GradEdge> sources_;
  std::map<std::pair<const GradNodeBase*, int>, GradEdge> edges_;  // by those of the trace
};

// A tensor that has a spec and an edge and no elements, for record().
Tensor without_elements(const TensorSpec& spec, GradEdge edge = {});

}  // namespace tandem
