// The methods of Tensor that call free functions.
#include "op/dtype_switch.h"
#include "tandem/array.h"
#include "tandem/math.h"

namespace tandem {
namespace {

ReduceOptions over(const Dims& axes, bool keepdims) {
  ReduceOptions options;
  options.keepdims = keepdims;
  if (!axes.empty()) options.axis = axes;
  return options;
}

}  // namespace

double Tensor::item() const {
  return switch_dtype(dtype(), [&]<class T>(TypeTag<T>) { return static_cast<double>(item<T>()); });
}

Tensor Tensor::sum(const Dims& axes, bool keepdims) const {
  return reduce_sum(*this, over(axes, keepdims));
}
Tensor Tensor::mean(const Dims& axes, bool keepdims) const {
  return reduce_mean(*this, over(axes, keepdims));
}
Tensor Tensor::max(const Dims& axes, bool keepdims) const {
  return reduce_max(*this, over(axes, keepdims));
}
Tensor Tensor::min(const Dims& axes, bool keepdims) const {
  return reduce_min(*this, over(axes, keepdims));
}
Tensor Tensor::argmax(std::int64_t axis) const { return tandem::argmax(*this, axis); }
Tensor Tensor::argmin(std::int64_t axis) const { return tandem::argmin(*this, axis); }
Tensor Tensor::reshape(const Shape& shape) const { return tandem::reshape(*this, shape); }
Tensor Tensor::transpose(const Dims& permutation) const {
  return tandem::transpose(*this, permutation);
}
Tensor Tensor::abs() const { return tandem::abs(*this); }
Tensor Tensor::sqrt() const { return tandem::sqrt(*this); }
Tensor Tensor::exp() const { return tandem::exp(*this); }
Tensor Tensor::log() const { return tandem::log(*this); }
Tensor Tensor::square() const { return tandem::square(*this); }

}  // namespace tandem
