#include <algorithm>

#include "autodiff/engine.h"
#include "core/status.h"
#include "op/context.h"
#include "op/record.h"
#include "runtime/variable_impl.h"
#include "tandem/array.h"
#include "tandem/autodiff.h"
#include "tandem/creation.h"

namespace tandem {
namespace {

// The record of a tape, if the node is one.
const OpNode* record_of(const RefPtr<GradNodeBase>& base) {
  const auto* node = static_cast<const GradNode*>(base.get());
  const auto* record = node->op ? static_cast<const OpNode*>(node) : nullptr;
  return record && record->tapes ? record : nullptr;
}

Tensor zeros_of(const TensorType& spec) { return zeros(spec.shape, {.dtype = spec.dtype}); }

}  // namespace

struct GradientTape::Impl {
  GradientTapeOptions options;
  bool used = false;
  RefPtr<TapeRecords> records = RefPtr<TapeRecords>(&TapeRecords::of_thread());
  std::uint64_t number = records->begin_tape();
  // Tensors that this tape made leaves. They stop being leaves when it ends.
  std::vector<Tensor> marked;
  std::vector<RefPtr<GradNodeBase>> watched;

  // Frees what only this tape has.
  void forget() {
    for (const Tensor& tensor : marked) impl_of(tensor).grad.node = {};
    marked.clear();
    for (const auto& node : watched)
      if (const OpNode* record = record_of(node)) record->tapes->unwatch(*record);
    watched.clear();
    used = false;
    records->end_tape(number);
  }

  bool follows(const Variable& variable, const GradEdge& edge) const {
    return (options.watch_accessed_variables && variable.trainable()) ||
           std::find(watched.begin(), watched.end(), edge.node) != watched.end();
  }
};

GradientTape::GradientTape(GradientTapeOptions options) : impl_(std::make_unique<Impl>()) {
  impl_->options = options;
  ++context.tapes;
}

GradientTape::~GradientTape() {
  impl_->forget();
  --context.tapes;
}

void GradientTape::reset() {
  impl_->forget();
  impl_->number = impl_->records->begin_tape();
}

void GradientTape::watch(const Tensor& tensor) {
  if (!is_floating(tensor.dtype()))
    fail<InvalidArgumentError>("[GradientTape] only floating tensors can be watched, got {}",
                               name_of(tensor.dtype()));
  if (!is_tracked(tensor)) {
    make_leaf(impl_->marked.emplace_back(tensor));
    static_cast<Leaf*>(impl_of(tensor).grad.node.get())->of_tape = true;
  }
  impl_->watched.push_back(impl_of(tensor).grad.node);
  if (const OpNode* record = record_of(impl_->watched.back())) record->tapes->watch(*record);
}

void GradientTape::watch(const Variable& variable) { watch(variable.value()); }

void GradientTape::use() {
  if (impl_->used && !impl_->options.persistent)
    throw RuntimeError(
        "A non-persistent GradientTape can only be used to compute one set of gradients (or "
        "jacobians)");
  impl_->used = true;
}

std::vector<Tensor> GradientTape::gradient(const Tensor& target, TensorList sources,
                                           const GradientOptions& options) {
  use();
  const TensorImpl& from = impl_of(target);
  if (!is_floating(from.dtype))
    fail<InvalidArgumentError>("[GradientTape] the target must be a floating tensor, got {}",
                               name_of(from.dtype));
  const Scoped tag(memory_tag, MemoryTag::kGradients);
  Tensor seed = options.output_gradient;
  if (!seed.defined()) {
    seed = ones_like(target.detach());
  } else if (!may_agree(seed.shape(), from.shape) || seed.dtype() != from.dtype) {
    fail<InvalidArgumentError>(
        "[GradientTape] expected an output gradient of shape {} and dtype {}, got {} and {}",
        from.shape.to_string(), name_of(from.dtype), seed.shape().to_string(),
        name_of(seed.dtype()));
  }
  seed = ensure_shape(seed, from.shape);

  BackwardPass pass;
  pass.roots.push_back({from.grad, seed});
  std::vector<std::size_t> indices;  // of the tracked sources
  for (std::size_t i = 0; i < sources.size(); ++i)
    if (const GradEdge& edge = impl_of(sources[i]).grad; leads_to_leaf(edge)) {
      pass.sources.push_back(edge);
      indices.push_back(i);
    }
  // A persistent tape, or another live one, may later compute the gradient of this result.
  pass.of_tape = true;
  pass.retain_graph = context.tapes > 1 || impl_->options.persistent;
  pass.create_graph = pass.retain_graph && context.records;

  std::vector<Tensor> result(sources.size());
  if (is_tracked(target) && !pass.sources.empty()) {
    std::vector<Tensor> found = run_backward(pass);
    for (std::size_t i = 0; i < indices.size(); ++i) result[indices[i]] = std::move(found[i]);
  }
  if (options.unconnected_gradients == UnconnectedGradients::kZero)
    for (std::size_t i = 0; i < sources.size(); ++i)
      if (!result[i].defined()) result[i] = zeros_of(impl_of(sources[i]));
  return result;
}

Tensor GradientTape::gradient(const Tensor& target, const Tensor& source,
                              const GradientOptions& options) {
  return gradient(target, std::span(&source, 1), options).front();
}

std::vector<Tensor> GradientTape::gradient(const Tensor& target,
                                           const std::vector<Variable>& sources,
                                           const GradientOptions& options) {
  std::vector<Tensor> values;
  values.reserve(sources.size());
  for (const Variable& variable : sources) {
    const Tensor value = variable.value();
    values.push_back(impl_->follows(variable, impl_of(value).grad) ? value : value.detach());
  }
  return gradient(target, std::span<const Tensor>(values), options);
}

Tensor GradientTape::gradient(const Tensor& target, const Variable& source,
                              const GradientOptions& options) {
  return gradient(target, std::vector<Variable>{source}, options).front();
}

Tensor GradientTape::jacobian(const Tensor& target, const Tensor& source) {
  use();
  const TensorImpl &from = impl_of(target), &to = impl_of(source);
  if (!is_floating(from.dtype))
    fail<InvalidArgumentError>("[GradientTape] the target must be a floating tensor, got {}",
                               name_of(from.dtype));
  if (!from.shape.fully_defined())
    fail<ShapeError>("[GradientTape] expected a target of a known shape for jacobian(), got {}",
                     from.shape.to_string());
  if (!is_tracked(target) || !leads_to_leaf(to.grad)) return {};
  const Scoped tag(memory_tag, MemoryTag::kGradients);
  const std::int64_t count = from.shape.num_elements();
  Dims both = from.shape.words();
  for (const std::int64_t size : to.shape.words()) both.push_back(size);
  if (count == 0) return zeros(Shape(both), {.dtype = to.dtype});
  const bool records = context.tapes > 1 || impl_->options.persistent;
  std::vector<Tensor> rows;
  for (std::int64_t i = 0; i < count; ++i) {
    const Tensor seed = one_hot(constant(i), count, {.dtype = from.dtype});
    const BackwardPass pass{.roots = {{from.grad, reshape(seed, from.shape)}},
                            .sources = {to.grad},
                            .of_tape = true,
                            .retain_graph = records || i + 1 < count,
                            .create_graph = records && context.records};
    rows.push_back(std::move(run_backward(pass).front()));
  }
  if (!rows.front().defined()) return {};
  return reshape(stack(rows), Shape(both));
}

Tensor GradientTape::jacobian(const Tensor& target, const Variable& source) {
  const Tensor value = source.value();
  return jacobian(target, impl_->follows(source, impl_of(value).grad) ? value : value.detach());
}

}  // namespace tandem
