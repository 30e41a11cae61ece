// The inverse of matrices, by Gauss-Jordan elimination on the host.
#include <cmath>
#include <utility>
#include <vector>

#include "core/dim.h"
#include "core/status.h"
#include "tandem/array.h"
#include "tandem/autograd.h"
#include "tandem/creation.h"
#include "tandem/math.h"

namespace tandem {
namespace {

// Replaces the n x n matrix `a` by its inverse. Returns false if it is singular.
bool invert(double* a, std::int64_t n) {
  std::vector<double> inverse(static_cast<std::size_t>(n * n), 0.0);
  double* b = inverse.data();
  for (std::int64_t i = 0; i < n; ++i) b[i * n + i] = 1.0;
  for (std::int64_t column = 0; column < n; ++column) {
    std::int64_t pivot = column;
    for (std::int64_t i = column + 1; i < n; ++i)
      if (std::abs(a[i * n + column]) > std::abs(a[pivot * n + column])) pivot = i;
    const double largest = a[pivot * n + column];
    if (largest == 0.0) return false;
    for (std::int64_t j = 0; j < n; ++j) {
      std::swap(a[pivot * n + j], a[column * n + j]);
      std::swap(b[pivot * n + j], b[column * n + j]);
    }
    for (std::int64_t j = 0; j < n; ++j) {
      a[column * n + j] /= largest;
      b[column * n + j] /= largest;
    }
    for (std::int64_t i = 0; i < n; ++i) {
      const double factor = a[i * n + column];
      if (i == column || factor == 0.0) continue;
      for (std::int64_t j = 0; j < n; ++j) {
        a[i * n + j] -= factor * a[column * n + j];
        b[i * n + j] -= factor * b[column * n + j];
      }
    }
  }
  for (std::int64_t i = 0; i < n * n; ++i) a[i] = b[i];
  return true;
}

Tensor inverse_of(const Tensor& x) {
  const std::int64_t n = x.size_word(-1);
  std::vector<double> elements = cast(x, float64).to_vector<double>();
  const std::int64_t matrices = n == 0 ? 0 : x.shape().num_elements() / (n * n);
  for (std::int64_t i = 0; i < matrices; ++i)
    if (!invert(elements.data() + i * n * n, n))
      fail<InvalidArgumentError>("[inv] expected invertible matrices, but matrix {} is singular",
                                 i);
  return cast(constant(elements, {.shape = x.shape(), .device = x.device()}), x.dtype());
}

struct Inverse : autograd::Function<Inverse> {
  static Tensor forward(autograd::Context* context, const Tensor& x) {
    Tensor y = inverse_of(x);
    context->save_for_backward({y});
    return y;
  }
  // d(x^-1) = -x^-1 dx x^-1
  static std::vector<Tensor> backward(autograd::Context* context,
                                      const std::vector<Tensor>& gradients) {
    const Tensor y = context->saved_tensors()[0];
    return {
        negative(matmul(matmul(y, gradients[0], {.transpose_a = true}), y, {.transpose_b = true}))};
  }
};

}  // namespace

Tensor linalg::inv(const Tensor& x) {
  if (!is_floating(x.dtype()))
    fail<DTypeError>("[inv] expected a floating dtype, got {}", name_of(x.dtype()));
  if (x.rank() < 2 || !dim::may_equal(x.size_word(-1), x.size_word(-2)))
    fail<ShapeError>("[inv] expected square matrices, got shape {}", x.shape().to_string());
  return Inverse::apply(x);
}

}  // namespace tandem
