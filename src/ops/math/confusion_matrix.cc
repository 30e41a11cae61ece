// Counts of pairs of classes.
#include <algorithm>

#include "core/status.h"
#include "tandem/array.h"
#include "tandem/creation.h"
#include "tandem/math.h"

namespace tandem {
namespace {

std::vector<std::int64_t> classes_of(const Tensor& x, const char* what) {
  if (!is_integer(x.dtype()))
    fail<DTypeError>("[confusion_matrix] expected {} of an integer dtype, got {}", what,
                     name_of(x.dtype()));
  if (x.rank() != 1)
    fail<ShapeError>("[confusion_matrix] expected a vector of {}, got shape {}", what,
                     x.shape().to_string());
  return cast(x, int64).to_vector<std::int64_t>();
}

}  // namespace

Tensor math::confusion_matrix(const Tensor& labels, const Tensor& predictions,
                              const ConfusionMatrixOptions& options) {
  const std::vector<std::int64_t> rows = classes_of(labels, "labels"),
                                  columns = classes_of(predictions, "predictions");
  if (rows.size() != columns.size())
    fail<ShapeError>("[confusion_matrix] expected one prediction per label, got {} and {}",
                     columns.size(), rows.size());
  std::int64_t largest = -1, smallest = 0;
  for (const auto* classes : {&rows, &columns})
    for (const std::int64_t c : *classes) {
      largest = std::max(largest, c);
      smallest = std::min(smallest, c);
    }
  const std::int64_t count = options.num_classes < 0 ? largest + 1 : options.num_classes;
  if (smallest < 0 || largest >= count)
    fail<InvalidArgumentError>("[confusion_matrix] expected classes in [0, {}), got {}", count,
                               smallest < 0 ? smallest : largest);
  std::vector<double> weights(rows.size(), 1.0);
  if (options.weights.defined()) {
    if (!(options.weights.shape() == labels.shape()))
      fail<ShapeError>("[confusion_matrix] expected one weight per label, got shape {}",
                       options.weights.shape().to_string());
    weights = cast(options.weights, float64).to_vector<double>();
  }
  std::vector<double> sums(static_cast<std::size_t>(count * count), 0.0);
  for (std::size_t i = 0; i < rows.size(); ++i)
    sums[static_cast<std::size_t>(rows[i] * count + columns[i])] += weights[i];
  return cast(constant(sums, {.shape = {count, count}}), options.dtype);
}

}  // namespace tandem
