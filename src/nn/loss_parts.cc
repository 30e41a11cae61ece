#include "nn/loss_parts.h"

#include "core/dim.h"
#include "core/status.h"
#include "nn/targets.h"
#include "ops/math/element_count.h"
#include "runtime/autocast.h"
#include "tandem/creation.h"
#include "tandem/math.h"

namespace tandem::losses {

std::string name_or(const std::string& name, const char* otherwise) {
  return name.empty() ? otherwise : name;
}

Tensor inside_unit(const Tensor& probabilities) {
  return clip_by_value(probabilities, kEpsilon, 1.0 - kEpsilon);
}

void expect_classes(const char* what, const Tensor& y_pred) {
  if (y_pred.rank() < 1 || y_pred.size_word(-1) == 0)
    fail<InvalidArgumentError>("[{}] expected y_pred of shape (..., classes), got {}", what,
                               y_pred.shape().to_string());
}

void expect_smoothing(const char* what, double smoothing) {
  if (!(smoothing >= 0.0 && smoothing <= 1.0))
    fail<InvalidArgumentError>("[{}] expected label smoothing in [0, 1], got {}", what, smoothing);
}

Tensor smoothed(const Tensor& labels, double smoothing, std::int64_t classes) {
  if (smoothing == 0.0) return labels;
  const Tensor kept = labels * (1.0 - smoothing);
  if (dim::is_unknown(classes))
    return kept + cast(divide(1.0, element_count({classes}, float64)) * smoothing, labels.dtype());
  return kept + smoothing * (1.0 / static_cast<double>(classes));
}

Tensor signs_of(const Tensor& labels) {
  const Tensor binary = reduce_all(logical_or(equal(labels, 0.0), equal(labels, 1.0)));
  return where(binary, labels * 2.0 - 1.0, labels);
}

Tensor for_loss(const Tensor& predictions) {
  return context.autocast ? at_least_float32(predictions) : predictions;
}

}  // namespace tandem::losses
