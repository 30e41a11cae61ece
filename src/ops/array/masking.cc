// Selection by a mask, whose elements decide the size of the result.
#include "core/dim.h"
#include "core/status.h"
#include "ops/math/of_size.h"
#include "tandem/array.h"
#include "tandem/creation.h"

namespace tandem {

Tensor boolean_mask(const Tensor& x, const Tensor& mask) {
  if (mask.dtype() != bool_)
    fail<DTypeError>("[boolean_mask] expected a mask of dtype bool, got {}", name_of(mask.dtype()));
  const int rank = mask.rank();
  bool fits = rank >= 1 && rank <= x.rank();
  for (int axis = 0; fits && axis < rank; ++axis)
    fits = dim::may_equal(x.shape().word(axis), mask.shape().word(axis));
  if (!fits)
    fail<ShapeError>("[boolean_mask] expected a mask of the leading axes of shape {}, got shape {}",
                     x.shape().to_string(), mask.shape().to_string());
  Shape whole = x.shape();
  for (int axis = 0; axis < rank; ++axis) whole.set(axis, mask.shape().word(axis));
  const Tensor source =
      of_shape("boolean_mask", "a tensor that begins with the mask's axes,", x, whole);
  const std::vector<bool> chosen = mask.to_vector<bool>();
  std::vector<std::int64_t> positions;
  for (std::size_t i = 0; i < chosen.size(); ++i)
    if (chosen[i]) positions.push_back(static_cast<std::int64_t>(i));
  const Shape parts = x.shape().without_leading(rank).with_leading(mask.size());
  return gather(rank == 1 ? source : reshape(source, parts), constant(positions));
}

}  // namespace tandem
