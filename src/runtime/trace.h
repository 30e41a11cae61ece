// Traces operations: on a thread that builds a graph they become nodes instead of running.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "graph/graph.h"
#include "runtime/generator.h"

namespace tandem {

// Adds `op` to the graph that the thread builds and returns symbolic results. Records it for
// gradients as a run would. REQUIRES: building.
std::vector<Tensor> trace_op(const OpDef& op, std::span<const Tensor* const> inputs,
                             AttrsRef attrs);

// A tensor with elements from host memory, on the current device; a constant of the graph if the
// thread builds one.
Tensor new_constant(const Shape& shape, DType dtype, const void* host, std::string_view name);

// The function that the calling thread traces.
struct TraceFrame {
  Generator* outside;  // the generator at the call
  std::string name;
  bool may_make_variables = true;
  bool made_variables = false;
};
extern constinit thread_local TraceFrame* trace_frame;  // null outside traces

// While an object of this class lives, operations run eagerly and use the caller's generator, as
// if the function were not being traced. For objects that are created once, such as the variables
// of a layer at its first call. It has no effect in the graph of a session, whose variables and
// initial values are part of the graph.
class OutsideTrace {
 public:
  OutsideTrace()
      : at_once_(trace_frame ? nullptr : building),
        generator_scope_(trace_frame ? *trace_frame->outside : Generator::current()) {}

 private:
  BuildingScope at_once_;
  GeneratorScope generator_scope_;
};

// Sets the key of a random operation at the start of each run: the number of `traced`, plus the
// offset of the thread's generator, plus the total of `before`.
std::shared_ptr<const AttrUpdate> key_update(const OpDef& op, const RandomKey& traced,
                                             std::shared_ptr<const RandomSequence> before);

// The elements of the initial value of a variable. If it is symbolic, it is computed at once.
// Throws InvalidArgumentError if the trace must not create variables, or if the value depends on
// the function's arguments.
Tensor initial_value(const Tensor& tensor, std::string_view variable);

// Names the node of `tensor` if it is symbolic and the name is not empty.
Tensor named(Tensor tensor, std::string_view name);

}  // namespace tandem
