// Reductions and norms made of other operations.
#include "core/status.h"
#include "runtime/trace.h"
#include "tandem/array.h"
#include "tandem/creation.h"
#include "tandem/math.h"

namespace tandem {

Tensor reduce_variance(const Tensor& x, const ReduceOptions& options) {
  const Tensor mean = reduce_mean(x, {.axis = options.axis, .keepdims = true});
  return reduce_mean(squared_difference(x, mean), options);
}

Tensor reduce_std(const Tensor& x, const ReduceOptions& options) {
  return named(sqrt(reduce_variance(x, {.axis = options.axis, .keepdims = options.keepdims})),
               options.name);
}

Tensor reduce_logsumexp(const Tensor& x, const ReduceOptions& options) {
  const Tensor largest = stop_gradient(reduce_max(x, {.axis = options.axis, .keepdims = true}));
  // Infinities must not be subtracted from each other.
  const Tensor shift = where(is_finite(largest), largest, zeros_like(largest));
  const Tensor result =
      log(reduce_sum(exp(x - shift), {.axis = options.axis, .keepdims = options.keepdims}));
  return named(result + reshape(shift, result.shape()), options.name);
}

Tensor global_norm(std::span<const Tensor> tensors) {
  std::vector<Tensor> norms;
  norms.reserve(tensors.size());
  for (const Tensor& tensor : tensors)
    if (tensor.defined())
      norms.push_back(cast(norm(tensor), norms.empty() ? tensor.dtype() : norms[0].dtype()));
  if (norms.empty())
    fail<InvalidArgumentError>("[global_norm] expected at least one defined tensor, got none");
  return norms.size() == 1 ? norms[0] : norm(stack(norms));
}

Tensor clip_by_norm(const Tensor& x, double clip_norm) {
  if (!(clip_norm > 0.0))
    fail<InvalidArgumentError>("[clip_by_norm] expected a clip_norm above 0, got {}", clip_norm);
  return x * (clip_norm / maximum(norm(x), clip_norm));
}

ClippedTensors clip_by_global_norm(std::span<const Tensor> tensors, double clip_norm) {
  if (!(clip_norm > 0.0))
    fail<InvalidArgumentError>("[clip_by_global_norm] expected a clip_norm above 0, got {}",
                               clip_norm);
  ClippedTensors result;
  result.norm = global_norm(tensors);
  const Tensor scale = clip_norm / maximum(result.norm, clip_norm);
  result.tensors.reserve(tensors.size());
  for (const Tensor& tensor : tensors)
    result.tensors.push_back(tensor.defined() ? tensor * cast(scale, tensor.dtype()) : Tensor());
  return result;
}

}  // namespace tandem
