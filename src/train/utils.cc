#include "tandem/utils.h"

#include <algorithm>
#include <vector>

#include "core/status.h"
#include "tandem/array.h"
#include "tandem/creation.h"
#include "tandem/math.h"

namespace tandem::utils {

Tensor to_categorical(const Tensor& labels, std::optional<std::int64_t> num_classes) {
  const Shape& shape = labels.shape();
  const bool column = shape.rank() == 2 && shape.word(1) == 1;
  if (shape.rank() != 1 && !column)
    fail<InvalidArgumentError>("[to_categorical] expected labels of shape (n,) or (n, 1), got {}",
                               shape.to_string());
  if (labels.dtype() == bool_)
    throw InvalidArgumentError("[to_categorical] expected numbers of classes, got dtype bool");
  const Tensor classes = cast(column ? reshape(labels, {shape.word(0)}) : labels, int64);
  const std::vector<std::int64_t> values = classes.cpu().to_vector<std::int64_t>();
  const std::int64_t largest = values.empty() ? -1 : *std::ranges::max_element(values);
  const std::int64_t count = num_classes.value_or(largest + 1);
  if (!values.empty() && (*std::ranges::min_element(values) < 0 || largest >= count))
    fail<InvalidArgumentError>("[to_categorical] expected labels in [0, {}), got {} to {}", count,
                               *std::ranges::min_element(values), largest);
  return one_hot(classes, count);
}

}  // namespace tandem::utils
