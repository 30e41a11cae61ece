// Gradients of calls of a traced function. A run of its program is recorded as one operation, whose
// gradient is another program.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "core/mutex.h"
#include "core/registered.h"
#include "graph/graph.h"
#include "graph/program.h"
#include "runtime/generator.h"

namespace tandem {

// The part of a TraceGradient for one program of the trace.
class ProgramGradient {
 public:
  virtual ~ProgramGradient() = default;
  // Records that a run computed `outputs` from `arguments`. `kept`: the values of
  // TraceGradient::fetches(). `random`: the state of the thread's generator before the run.
  virtual void record(std::span<const Tensor> arguments, std::span<Tensor> outputs,
                      std::span<const Tensor> kept, const random::GeneratorState& random) = 0;
};

// The recorded operations of a trace. Its backward pass compiles programs when they are first
// needed, one per set of outputs that have a gradient.
class TraceGradient {
 public:
  virtual ~TraceGradient() = default;

  // The tensors that each run fetches for record(), besides the outputs.
  virtual const std::vector<Node::Input>& fetches() const = 0;
  // `sizes`: the sizes of the graph in that program. `options`: of the backward programs. They must
  // not share the memory of the forward program, because their runs would drop the results that it
  // keeps between runs.
  virtual std::shared_ptr<ProgramGradient> for_program(const KnownSizes& sizes,
                                                       ProgramOptions options) = 0;
  // Held while nodes are added to the graph, and while they are read.
  Mutex& graph_mutex() { return graph_mutex_; }

 private:
  Mutex graph_mutex_{"function"};
};

// Makes the TraceGradient of a trace, whose `arguments` are symbolic. Returns null if there is
// nothing to record: no output depends on tensors that were tracked during tracing, or the callable
// has computed gradients itself, which freed the recorded operations. Registered by autodiff/.
extern constinit Registered<std::shared_ptr<TraceGradient>(
    GraphImpl& graph, std::span<const Tensor> arguments, std::span<const Tensor> outputs)>
    make_trace_gradient;

}  // namespace tandem
