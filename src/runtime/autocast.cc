#include "runtime/autocast.h"

#include <algorithm>

#include "graph/graph.h"
#include "op/record.h"

namespace tandem {

constinit Registered<Tensor(const Tensor&, DType)> cast_tensor("cast_tensor");
constinit thread_local const AutocastState* autocast = nullptr;
constinit thread_local std::optional<DType> weight_dtype;

namespace {

// The cache of the thread's outermost scope.
constinit thread_local CastCache* shared_cache = nullptr;

bool cacheable(const Tensor& tensor) {
  const TensorImpl& impl = impl_of(tensor);
  return !building && grad_mode && impl.dtype == float32 && impl.grad &&
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
  if (!entry.to.defined() || entry.to.dtype() != dtype ||
      impl_of(entry.from).storage != impl_of(tensor).storage)
    entry = {tensor, cast_tensor(tensor, dtype)};
  return entry.to;
}

AutocastScope::AutocastScope(const std::optional<AutocastSettings>& settings)
    : previous_(autocast), previous_cache_(shared_cache) {
  if (!shared_cache) shared_cache = &own_cache_;
  if (settings) state_ = {*settings, settings->caches ? shared_cache : nullptr};
  autocast = settings ? &state_ : nullptr;
}

AutocastScope::~AutocastScope() {
  autocast = previous_;
  shared_cache = previous_cache_;
}

std::optional<AutocastSettings> autocast_settings() {
  if (!autocast) return std::nullopt;
  return autocast->settings;
}

Tensor autocast_float32_on_gpus(const Tensor& x) {
  const bool casts = autocast && autocast->settings.device == DeviceType::kGpu &&
                     is_castable(x.dtype()) && x.dtype() != float32;
  return casts ? cast_tensor(x, float32) : x;
}

AutocastInputs::AutocastInputs(const OpDef& op, std::span<const Tensor* const> inputs) {
  const bool gpu = autocast->settings.device == DeviceType::kGpu;
  switch (gpu ? op.autocast.gpu : op.autocast.cpu) {
    case AutocastRule::kNone: return;
    case AutocastRule::kLower: cast_to(autocast->settings.dtype, inputs); break;
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
    cast_.push_back(autocast->cache && cacheable(*input) ? autocast->cache->cast(*input, dtype)
                                                         : cast_tensor(*input, dtype));
    pointers_.push_back(&cast_.back());
  }
}

}  // namespace tandem
