#include "tandem/initializers.h"

#include <cmath>

#include "core/status.h"
#include "nn/naming.h"
#include "tandem/array.h"
#include "tandem/creation.h"
#include "tandem/math.h"
#include "tandem/random.h"

namespace tandem {

Initializer::Initializer(const char* name) : Initializer(initializers::from_name(name)) {}

Tensor Initializer::operator()(const Shape& shape, DType dtype) const {
  if (!function_) throw FailedPreconditionError("[Initializer] an undefined initializer was used");
  return function_(shape, dtype);
}

namespace initializers {
namespace {

struct Fans {
  double in = 1.0;
  double out = 1.0;
};

Fans fans_of(const Shape& shape) {
  const int rank = shape.rank();
  if (rank == 0) return {};
  if (rank == 1) return {static_cast<double>(shape.word(0)), static_cast<double>(shape.word(0))};
  double receptive_field = 1.0;
  for (int axis = 0; axis < rank - 2; ++axis)
    receptive_field *= static_cast<double>(shape.word(axis));
  return {receptive_field * static_cast<double>(shape.word(rank - 2)),
          receptive_field * static_cast<double>(shape.word(rank - 1))};
}

enum class FanMode { kIn, kAverage };

double variance_of(const Shape& shape, double scale, FanMode mode) {
  const Fans fans = fans_of(shape);
  const double fan = mode == FanMode::kIn ? fans.in : (fans.in + fans.out) / 2.0;
  return scale / std::max(1.0, fan);
}

Initializer scaled_uniform(std::string name, double scale, FanMode mode) {
  return {std::move(name), [=](const Shape& shape, DType dtype) {
            const double limit = std::sqrt(3.0 * variance_of(shape, scale, mode));
            return random::uniform(shape, -limit, limit, {.dtype = dtype});
          }};
}

// The standard deviation of a standard normal distribution that is truncated at two standard
// deviations. Dividing by it gives the samples the requested variance, as in Keras.
constexpr double kTruncatedStddev = 0.87962566103423978;

Initializer scaled_normal(std::string name, double scale, FanMode mode) {
  return {std::move(name), [=](const Shape& shape, DType dtype) {
            const double stddev = std::sqrt(variance_of(shape, scale, mode)) / kTruncatedStddev;
            return random::truncated_normal(shape, 0.0, stddev, {.dtype = dtype});
          }};
}

// How many steps of orthogonal_value() the smallest singular value of a normal [rows, columns]
// matrix takes to reach 1, if the largest starts there: it grows by half each time, and then the
// error is squared. A value smaller than assumed here is unlikely (Rudelson and Vershynin 2009).
int steps_to_orthogonal(double rows, double columns) {
  const double more = std::sqrt(std::max(rows, columns)), less = std::sqrt(std::min(rows, columns));
  const double smallest = std::max(more - less, 1e-3 / more) / (more + less);
  return static_cast<int>(std::ceil(-std::log(smallest) / std::log(1.5))) + 8;
}

// The orthogonal factor of the polar decomposition of a normal matrix, whose distribution is as
// uniform as that of Keras's QR decomposition, by Newton-Schulz steps. Products alone can also run
// in a graph and on any device.
Tensor orthogonal_value(const Shape& shape, double gain, DType dtype) {
  if (shape.rank() < 2)
    fail<InvalidArgumentError>("[orthogonal] expected a shape of two or more axes, got {}",
                               shape.to_string());
  const std::int64_t columns = shape.word(shape.rank() - 1);
  const std::int64_t rows = columns == 0 ? 0 : shape.num_elements() / columns;
  if (rows == 0) return tandem::zeros(shape, {.dtype = dtype});
  const double n = static_cast<double>(rows), m = static_cast<double>(columns);
  Tensor x = random::normal({std::min(rows, columns), std::max(rows, columns)}, 0.0,
                            1.0 / (std::sqrt(n) + std::sqrt(m)),
                            {.dtype = dtype == float64 ? float64 : float32});
  for (int step = steps_to_orthogonal(n, m); step > 0; --step)
    x = x * 1.5 - matmul(matmul(x, x, {.transpose_b = true}), x) * 0.5;
  const Tensor value = reshape(rows > columns ? transpose(x) : x, shape) * gain;
  return value.dtype() == dtype ? value : cast(value, dtype);
}

}  // namespace

Initializer zeros() {
  return {"zeros",
          [](const Shape& shape, DType dtype) { return tandem::zeros(shape, {.dtype = dtype}); }};
}

Initializer ones() {
  return {"ones",
          [](const Shape& shape, DType dtype) { return tandem::ones(shape, {.dtype = dtype}); }};
}

Initializer constant(double value) {
  return {"constant",
          [=](const Shape& shape, DType dtype) { return full(shape, value, {.dtype = dtype}); }};
}

Initializer random_normal(double mean, double stddev) {
  return {"random_normal", [=](const Shape& shape, DType dtype) {
            return random::normal(shape, mean, stddev, {.dtype = dtype});
          }};
}

Initializer random_uniform(double low, double high) {
  return {"random_uniform", [=](const Shape& shape, DType dtype) {
            return random::uniform(shape, low, high, {.dtype = dtype});
          }};
}

Initializer truncated_normal(double mean, double stddev) {
  return {"truncated_normal", [=](const Shape& shape, DType dtype) {
            return random::truncated_normal(shape, mean, stddev, {.dtype = dtype});
          }};
}

Initializer glorot_uniform() { return scaled_uniform("glorot_uniform", 1.0, FanMode::kAverage); }
Initializer glorot_normal() { return scaled_normal("glorot_normal", 1.0, FanMode::kAverage); }
Initializer he_uniform() { return scaled_uniform("he_uniform", 2.0, FanMode::kIn); }
Initializer he_normal() { return scaled_normal("he_normal", 2.0, FanMode::kIn); }
Initializer lecun_uniform() { return scaled_uniform("lecun_uniform", 1.0, FanMode::kIn); }
Initializer lecun_normal() { return scaled_normal("lecun_normal", 1.0, FanMode::kIn); }

Initializer orthogonal(double gain) {
  return {"orthogonal",
          [=](const Shape& shape, DType dtype) { return orthogonal_value(shape, gain, dtype); }};
}

Initializer from_name(std::string_view name) {
  using Factory = Initializer (*)();
  static constexpr NamedEntry<Factory> kTable[] = {
      {"zeros", zeros},
      {"ones", ones},
      {"random_normal", [] { return random_normal(); }},
      {"random_uniform", [] { return random_uniform(); }},
      {"truncated_normal", [] { return truncated_normal(); }},
      {"glorot_uniform", glorot_uniform},
      {"glorot_normal", glorot_normal},
      {"he_uniform", he_uniform},
      {"he_normal", he_normal},
      {"lecun_uniform", lecun_uniform},
      {"lecun_normal", lecun_normal},
      {"orthogonal", [] { return orthogonal(); }},
  };
  return find_named(std::span<const NamedEntry<Factory>>(kTable), "initializers", name)();
}

}  // namespace initializers
}  // namespace tandem
