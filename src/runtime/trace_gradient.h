// Gradients of a traced function that are asked for outside of it: a run of its program is recorded
// as one operation, whose gradient is a program, too.
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "graph/graph.h"
#include "graph/program.h"
#include "runtime/generator.h"

namespace tandem {

// The part of a TraceGradient for one program of the trace.
class ProgramGradient {
 public:
  virtual ~ProgramGradient() = default;
  // Records that a run made `outputs` of `arguments`. `kept`: what TraceGradient::fetches() asked
  // for. `random`: the state of the thread's generator before the run.
  virtual void record(std::span<const Tensor> arguments, std::span<Tensor> outputs,
                      std::span<const Tensor> kept, const random::GeneratorState& random) = 0;
};

// What the operations of a trace have recorded. Going back through it makes programs, one for each
// set of outputs that something depends on, when they are first needed.
class TraceGradient {
 public:
  // Null where there is nothing to record: no output depends on what was tracked when the callable
  // was traced, or what was recorded is gone, because the callable has taken gradients itself.
  // `arguments`: the symbolic ones. Defined in autodiff/, which knows how to go back.
  static std::shared_ptr<TraceGradient> make(GraphImpl& graph, std::span<const Tensor> arguments,
                                             std::span<const Tensor> outputs);
  virtual ~TraceGradient() = default;

  // What each run fetches for record(), beside the outputs.
  virtual const std::vector<Node::Input>& fetches() const = 0;
  // `sizes`: those of the graph, as they are in that program. `options`: of the programs that go
  // back. They run between runs of the program, whose memory another one's run would clear of what
  // it keeps: theirs is to be another.
  virtual std::shared_ptr<ProgramGradient> for_program(const KnownSizes& sizes,
                                                       ProgramOptions options) = 0;
  // Held by who adds nodes to the graph, and by who reads them.
  std::mutex& graph_mutex() { return graph_mutex_; }

 private:
  std::mutex graph_mutex_;
};

}  // namespace tandem
