#include "function/initial_value.h"

#include "core/status.h"
#include "function/placer.h"
#include "graph/program.h"
#include "runtime/generator.h"
#include "runtime/trace.h"
#include "runtime/variable_name.h"

namespace tandem {

namespace {

// Computes a symbolic tensor from constants and variables.
Tensor evaluated(const Tensor& tensor, std::string_view variable) {
  const Symbol& symbol = symbol_of(tensor);
  GraphImpl& graph = *symbol.node->graph;
  LowerOptions options;
  options.fetches = {{symbol.node, symbol.output}};
  options.devices = place_graph(graph);
  options.devices_of = [](const GraphImpl& body) { return place_graph(body); };
  Block block;
  try {
    block = lower(graph, options);
  } catch (const InvalidArgumentError&) {
    fail<InvalidArgumentError>(
        "[Variable] the initial value of {} depends on the arguments of the function that is "
        "being traced; a variable is made once, from what does not change between calls",
        quoted_name(std::string(variable), impl_of(tensor)));
  }
  const std::uint64_t traced = Generator::current().state().offset;  // random operations so far
  const OutsideTrace at_once;
  Tensor value = std::move(Program(std::move(block)).run({}).front());
  random::GeneratorState state = Generator::current().state();
  state.offset += traced;
  Generator::current().set_state(state);
  return value;
}

}  // namespace

Tensor initial_value(const Tensor& tensor, std::string_view variable) {
  if (!context.graph || !context.trace) return tensor;
  if (!context.trace->may_make_variables)
    fail<InvalidArgumentError>(
        "tf.function-decorated function tried to create variables on non-first call. Variable {} "
        "was made in a call of {} that traced it anew; make variables outside, or only if they are "
        "not there yet (if (!v.defined()) v = Variable(...); layers and optimizers do)",
        quoted_name(std::string(variable), impl_of(tensor)), context.trace->name);
  context.trace->made_variables = true;
  return is_symbolic(tensor) ? evaluated(tensor, variable) : tensor;
}

}  // namespace tandem
