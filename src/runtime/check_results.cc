#include "runtime/check_results.h"

#include "core/status.h"
#include "graph/check_numerics.h"
#include "graph/graph.h"
#include "op/record.h"
#include "runtime/trace.h"
#include "runtime/variable_impl.h"
#include "tandem/debugging.h"

namespace tandem {
namespace {

// The elements of views were checked when they were computed.
bool is_checked(const OpDef& op, std::span<const Tensor* const> inputs) {
  if (&op == &kCheckNumerics || (op.traits & kView) != 0) return false;
  for (const Tensor* input : inputs)
    if (is_floating(input->dtype())) return true;
  return false;
}

std::string of_layer(const std::string* layer) {
  return layer && !layer->empty() ? fmt::format(" of layer '{}'", *layer) : std::string();
}

std::string described(const OpDef& op) {
  if (differentiated)
    return fmt::format("operation {} (backward pass: the gradient of {}{})", op.name,
                       differentiated->op->name, of_layer(differentiated->layer.get()));
  if (called_layer)
    return fmt::format("operation {}{} (forward pass)", op.name, of_layer(called_layer));
  return fmt::format("operation {} (outside of layers and backward passes)", op.name);
}

// The name of the variable that a symbolic tensor was read from, or of the argument that it is.
std::string name_of_source(const Tensor& tensor) {
  if (!is_symbolic(tensor)) return "a constant";
  const Node& node = *symbol_of(tensor).node;
  if (!node.inputs.empty() && node.inputs[0].node->resource)
    return "variable " + quoted_name(node.inputs[0].node->resource->name(),
                                     node.inputs[0].node->resource->spec());
  return node.inputs.empty() ? node.name : std::string();
}

TensorView view_of(const Tensor& on_host) {
  const TensorImpl& impl = impl_of(on_host);
  return {impl.data(), impl.dtype, impl.shape};
}

}  // namespace

void check_results(const OpDef& op, std::span<const Tensor* const> inputs,
                   std::span<const Tensor> outputs) {
  if (!is_checked(op, inputs)) return;
  std::vector<Tensor> on_host;
  std::vector<TensorView> views;
  for (const Tensor* input : inputs) views.push_back(view_of(on_host.emplace_back(input->cpu())));
  const CheckNumericsAttrs what{.operation = described(op), .inputs = {}};
  for (const Tensor& output : outputs)
    if (is_floating(output.dtype())) {
      const Tensor host = output.cpu();
      require_finite(what, view_of(host), views);
    }
}

void trace_checks(const OpDef& op, std::span<const Tensor* const> inputs,
                  std::span<Tensor> outputs) {
  if (!is_checked(op, inputs)) return;
  CheckNumericsAttrs what{.operation = described(op), .inputs = {}};
  for (const Tensor* input : inputs) what.inputs += name_of_source(*input) + '\n';
  for (Tensor& output : outputs) {
    if (!is_floating(output.dtype())) continue;
    std::vector<const Tensor*> all = {&output};
    all.insert(all.end(), inputs.begin(), inputs.end());
    output = trace_op(kCheckNumerics, all, what).front();
  }
}

namespace debugging {

void enable_check_numerics() { numerics_checked.store(true); }
void disable_check_numerics() { numerics_checked.store(false); }
bool check_numerics_enabled() { return checks_numerics(); }

CheckNumericsScope::CheckNumericsScope() : previous_(numerics_checked.exchange(true)) {}
CheckNumericsScope::~CheckNumericsScope() { numerics_checked.store(previous_); }

}  // namespace debugging
}  // namespace tandem
