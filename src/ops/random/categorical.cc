// Samples of categories, by the Gumbel trick, and of ones: made of other operations.
#include "core/dim.h"
#include "core/status.h"
#include "tandem/array.h"
#include "tandem/math.h"
#include "tandem/random.h"

namespace tandem::random {
namespace {

// The largest of log(p) + gumbel is category i with probability p[i] / sum(p).
Tensor gumbel(const Shape& shape, DType dtype) {
  return negative(log(negative(log(uniform(shape, 0.0, 1.0, dtype)))));
}

void expect_rows(const char* function, const Tensor& x, Dim count) {
  if (!is_floating(x.dtype()))
    fail<DTypeError>("[{}] expected a floating-point dtype, got {}", function, name_of(x.dtype()));
  if (x.rank() < 1 || !dim::may_be_at_most(1, count))
    fail<InvalidArgumentError>(
        "[{}] expected an axis of categories and at least 1 sample, got shape "
        "{} and {}",
        function, x.shape().to_string(), count.to_string());
}

}  // namespace

Tensor bernoulli(const Tensor& probabilities) {
  if (!is_floating(probabilities.dtype()))
    fail<DTypeError>("[bernoulli] expected probabilities of a floating-point dtype, got {}",
                     name_of(probabilities.dtype()));
  return cast(less(uniform(probabilities.shape(), 0.0, 1.0, probabilities.dtype()), probabilities),
              probabilities.dtype());
}

Tensor categorical(const Tensor& logits, Dim count) {
  expect_rows("categorical", logits, count);
  Dims sizes;
  for (int axis = 0; axis < logits.rank() - 1; ++axis) sizes.push_back(logits.size_word(axis));
  sizes.push_back(count.word());
  sizes.push_back(logits.size_word(-1));
  return argmax(expand_dims(logits, -2) + gumbel(Shape(sizes), logits.dtype()), -1);
}

Tensor multinomial(const Tensor& probabilities, Dim count, bool replacement) {
  expect_rows("multinomial", probabilities, count);
  if (replacement) return categorical(log(probabilities), count);
  if (!dim::may_be_at_most(count, probabilities.dim(-1)))
    fail<InvalidArgumentError>(
        "[multinomial] expected at most {} samples without replacement, got {}",
        dim::text(probabilities.dim(-1)), count.to_string());
  const Tensor scores = log(probabilities) + gumbel(probabilities.shape(), probabilities.dtype());
  return topk(scores, count).indices;
}

}  // namespace tandem::random
