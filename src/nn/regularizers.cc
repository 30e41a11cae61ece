#include "tandem/regularizers.h"

#include "core/status.h"
#include "nn/naming.h"
#include "tandem/math.h"

namespace tandem {
namespace {

void expect_factor(const char* name, double factor) {
  if (!(factor >= 0.0))
    fail<InvalidArgumentError>("[{}] expected a factor of 0 or more, got {}", name, factor);
}

using Factory = Regularizer (*)();
constexpr NamedEntry<Factory> kTable[] = {
    {"l1", [] { return Regularizer(regularizers::L1()); }},
    {"l2", [] { return Regularizer(regularizers::L2()); }},
    {"l1_l2", [] { return Regularizer(regularizers::L1L2(0.01, 0.01)); }},
};

}  // namespace

Regularizer::Regularizer(const char* name)
    : Regularizer(find_named<Factory>(kTable, "regularizers", name)()) {}

Tensor Regularizer::operator()(const Tensor& value) const {
  const Tensor penalty = penalty_(value);
  if (penalty.rank() != 0)
    fail<ShapeError>("[regularizer] expected a scalar penalty, got shape {}",
                     penalty.shape().to_string());
  return penalty;
}

namespace regularizers {

L1::L1(double l1) : Regularizer([l1](const Tensor& value) { return reduce_sum(abs(value)) * l1; }) {
  expect_factor("l1", l1);
}

L2::L2(double l2)
    : Regularizer([l2](const Tensor& value) { return reduce_sum(square(value)) * l2; }) {
  expect_factor("l2", l2);
}

L1L2::L1L2(double l1, double l2)
    : Regularizer([l1, l2](const Tensor& value) {
        return reduce_sum(abs(value)) * l1 + reduce_sum(square(value)) * l2;
      }) {
  expect_factor("l1_l2", l1);
  expect_factor("l1_l2", l2);
}

}  // namespace regularizers
}  // namespace tandem
