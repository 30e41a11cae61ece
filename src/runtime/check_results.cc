#include "runtime/check_results.h"

#include "core/status.h"
#include "graph/check_numerics.h"
#include "op/record.h"
#include "tandem/debugging.h"

namespace tandem {
namespace {

std::string of_layer(const std::string* layer) {
  return layer && !layer->empty() ? fmt::format(" of layer '{}'", *layer) : std::string();
}

TensorView view_of(const Tensor& on_host) {
  const TensorImpl& impl = impl_of(on_host);
  return {impl.data(), impl.dtype, impl.shape};
}

}  // namespace

bool has_checked_results(const OpDef& op, std::span<const Tensor* const> inputs) {
  // The elements of views were checked when they were computed.
  if (&op == &kCheckNumerics || (op.traits & kView) != 0) return false;
  for (const Tensor* input : inputs)
    if (is_floating(input->dtype())) return true;
  return false;
}

std::string describe_operation(const OpDef& op) {
  if (context.differentiated)
    return fmt::format("operation {} (backward pass: the gradient of {}{})", op.name,
                       context.differentiated->op->name,
                       of_layer(context.differentiated->layer.get()));
  if (context.layer)
    return fmt::format("operation {}{} (forward pass)", op.name, of_layer(context.layer));
  return fmt::format("operation {} (outside of layers and backward passes)", op.name);
}

void check_results(const OpDef& op, std::span<const Tensor* const> inputs,
                   std::span<const Tensor> outputs) {
  if (!has_checked_results(op, inputs)) return;
  std::vector<Tensor> on_host;
  std::vector<TensorView> views;
  for (const Tensor* input : inputs) views.push_back(view_of(on_host.emplace_back(input->cpu())));
  const CheckNumericsAttrs what{.operation = describe_operation(op), .inputs = {}};
  for (const Tensor& output : outputs)
    if (is_floating(output.dtype())) {
      const Tensor host = output.cpu();
      require_finite(what, view_of(host), views);
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
