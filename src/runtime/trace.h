// Traces operations: on a thread that builds a graph they become nodes instead of running.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "graph/element_pass.h"
#include "graph/graph.h"
#include "runtime/generator.h"

namespace tandem {

class VariableImpl;

// Adds `op` to the graph that the thread builds and returns symbolic results. Records it for
// gradients as a run would. REQUIRES: context.graph.
std::vector<Tensor> trace_op(const OpDef& op, std::span<const Tensor* const> inputs,
                             AttrsRef attrs);

// A tensor with elements from host memory, on the current device; a constant of the graph if the
// thread builds one.
Tensor new_constant(const Shape& shape, DType dtype, const void* host, std::string_view name);

// An element that a function takes from a pass in each run.
struct TracedElement {
  std::shared_ptr<ElementPass> captured;  // the pass; null if it is an argument
  std::size_t argument = 0;               // its index among the passes in the arguments
  std::vector<Tensor> tensors;            // symbolic
};

// Settings of objects that a function has read, and their values.
using Settings = std::unordered_map<std::shared_ptr<const std::atomic<bool>>, bool>;

// The function that the calling thread traces.
struct TraceFrame {
  Generator* outside;  // the generator at the call
  std::string name;
  bool may_make_variables = true;
  bool made_variables = false;
  std::span<const std::shared_ptr<ElementPass>> passes{};  // in the arguments
  std::vector<TracedElement> elements{};                   // in the order of their use
  // Variables that the function itself freezes or unfreezes, and whether they were frozen.
  std::unordered_map<const VariableImpl*, bool> frozen_before{};
  Settings settings{};
};

// Called when an object reads a setting, and before one changes it for a while: calls use the
// trace of a function only while the settings that it has noted have the values of then.
void note_setting(const std::shared_ptr<const std::atomic<bool>>& setting);

// While an object of this class lives, operations run eagerly and use the caller's generator, as
// if the function were not being traced. For objects that are created once, such as the variables
// of a layer at its first call. It has no effect in the graph of a session, whose variables and
// initial values are part of the graph.
class OutsideTrace {
 public:
  OutsideTrace()
      : at_once_(context.graph, context.trace ? nullptr : context.graph),
        generator_(context.generator, context.trace ? context.trace->outside : context.generator) {}

 private:
  Scoped<GraphImpl*> at_once_;
  Scoped<Generator*> generator_;
};

// Adds the next element of `pass` to the trace: placeholders of `specs`, which each run feeds with
// the element that it takes. Throws UnimplementedError in a branch, in the body of a loop and in
// the graph of a session. REQUIRES: context.graph.
std::vector<Tensor> traced_element(const std::shared_ptr<ElementPass>& pass,
                                   std::span<const TensorType> specs);

// Sets the key of a random operation at the start of each run: the number of `traced`, plus the
// offset of the thread's generator, plus the total of `before`.
std::shared_ptr<const AttrUpdate> key_update(const OpDef& op, const RandomKey& traced,
                                             std::shared_ptr<const RandomSequence> before);

// Names the node of `tensor` if it is symbolic and the name is not empty.
Tensor named(Tensor tensor, std::string_view name);

}  // namespace tandem
