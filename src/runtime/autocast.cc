#include "runtime/autocast.h"

#include <algorithm>

#include "graph/graph.h"
#include "op/record.h"

namespace tandem {

constinit Registered<Tensor(const Tensor&, DType)> cast_tensor("cast_tensor");

namespace {

bool cacheable(const Tensor& tensor) {
  const TensorImpl& impl = impl_of(tensor);
  return !context.graph && context.records && impl.dtype == float32 && impl.grad &&
         !static_cast<const GradNode*>(impl.grad.node.get())->op;
}

// Autocast leaves float64 alone, as PyTorch does.
bool is_castable(DType dtype) { return is_floating(dtype) && dtype != float64; }

DType widest(std::span<const Tensor* const> inputs) {
  DType result = bool_;
  for (const Tensor* input : inputs) {
    const DType dtype = input->dtype();
    if (!is_floating(dtype)) continue;
    if (result == bool_ || dtype == float64)
      result = dtype;
    else if (dtype != result && result != float64)
      result = float32;  // also of float16 and bfloat16
  }
  return result;
}

}  // namespace

Tensor CastCache::cast(const Tensor& tensor, DType dtype) {
  Entry& entry = entries_[impl_of(tensor).data()];
  // A backward pass or the end of a tape may have freed the record of the cast.
  if (!entry.to.defined() || entry.to.dtype() != dtype || is_dead_end(impl_of(entry.to).grad) ||
      impl_of(entry.from).storage != impl_of(tensor).storage)
    entry = {tensor, cast_tensor(tensor, dtype)};
  return entry.to;
}

Tensor autocast_float32_on_gpus(const Tensor& x) {
  const bool casts = context.autocast && context.autocast->device == DeviceType::kGpu &&
                     is_castable(x.dtype()) && x.dtype() != float32;
  return casts ? cast_tensor(x, float32) : x;
}

AutocastInputs::AutocastInputs(const OpDef& op, std::span<const Tensor* const> inputs) {
  const bool gpu = context.autocast->device == DeviceType::kGpu;
  switch (gpu ? op.autocast.gpu : op.autocast.cpu) {
    case AutocastRule::kNone: return;
    case AutocastRule::kLower: cast_to(context.autocast->dtype, inputs); break;
    case AutocastRule::kFloat32: cast_to(float32, inputs); break;
    case AutocastRule::kWidest: cast_to(widest(inputs), inputs); break;
  }
}

void AutocastInputs::cast_to(DType dtype, std::span<const Tensor* const> inputs) {
  const auto changes = [dtype](const Tensor* input) {
    return is_castable(input->dtype()) && input->dtype() != dtype;
  };
  if (std::none_of(inputs.begin(), inputs.end(), changes)) return;
  cast_.reserve(inputs.size());
  pointers_.reserve(inputs.size());
  for (const Tensor* input : inputs) {
    if (!changes(input)) {
      pointers_.push_back(input);
      continue;
    }
    cast_.push_back(context.autocast->caches && cacheable(*input)
                        ? context.cast_cache->cast(*input, dtype)
                        : cast_tensor(*input, dtype));
    pointers_.push_back(&cast_.back());
  }
}

}  // namespace tandem
