// Operations of a thread that builds a graph: they become nodes instead of running.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "graph/graph.h"
#include "runtime/generator.h"

namespace tandem {

// Adds `op` to the graph that the thread is building; the results are symbolic. Recorded for
// gradients as a run would be. REQUIRES: building.
std::vector<Tensor> trace_op(const OpDef& op, std::span<const Tensor* const> inputs,
                             AttrsRef attrs);

// A tensor of elements that the host has, on the present device; a constant of the graph when the
// thread is building one.
Tensor new_constant(const Shape& shape, DType dtype, const void* host, std::string_view name);

// The function that the calling thread traces.
struct TraceFrame {
  Generator* outside;  // the generator at the call
  std::string name;
  bool may_make_variables = true;
  bool made_variables = false;
};
extern constinit thread_local TraceFrame* trace_frame;  // null: none

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

// The elements of a tensor that a variable is made with, also while the thread traces: computed at
// once. Throws InvalidArgumentError where variables may not be made any more, or when the tensor
// depends on the function's arguments.
Tensor initial_value(const Tensor& tensor, std::string_view variable);

// `tensor` under the name that the user gave it, where it is symbolic and the name is not empty.
Tensor named(Tensor tensor, std::string_view name);

}  // namespace tandem
