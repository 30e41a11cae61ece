/// @file
/// Initializers of variables. As tf.keras.initializers.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "tandem/tensor.h"

namespace tandem {

/// Computes the initial value of a variable. A value; thread-safe.
class Initializer {
 public:
  /// Computes a value of this shape and dtype.
  using Function = std::function<Tensor(const Shape& shape, DType dtype)>;
  Initializer() = default;
  /// An initializer that calls `function`; `name` is for messages.
  Initializer(std::string name, Function function)
      : name_(std::move(name)), function_(std::move(function)) {}
  /// The initializer of this name ("glorot_uniform", "zeros", ...) with default arguments. Throws
  /// InvalidArgumentError that lists the names.
  Initializer(const char* name);  // NOLINT: a name stands for the initializer

  const std::string& name() const { return name_; }  ///< name
  /// Computes an initial value.
  Tensor operator()(const Shape& shape, DType dtype = float32) const;

 private:
  std::string name_;
  Function function_;
};

/// Initializers. As tf.keras.initializers; random ones use the stream of tandem::random. Fans count
/// as in Keras: for shape [..., in, out], in and out times the product of the leading sizes.
namespace initializers {

Initializer zeros();                                                 ///< all zeros
Initializer ones();                                                  ///< all ones
Initializer constant(double value);                                  ///< all `value`
Initializer random_normal(double mean = 0.0, double stddev = 0.05);  ///< normal distribution
Initializer random_uniform(double low = -0.05, double high = 0.05);  ///< uniform over [low, high)
/// Normal distribution within two standard deviations.
Initializer truncated_normal(double mean = 0.0, double stddev = 0.05);
/// Uniform in +-sqrt(6 / (fan_in + fan_out)) (Glorot and Bengio 2010).
Initializer glorot_uniform();
Initializer glorot_normal();  ///< truncated normal, standard deviation sqrt(2 / (fan_in + fan_out))
Initializer he_uniform();     ///< uniform in +-sqrt(6 / fan_in) (He et al. 2015)
Initializer he_normal();      ///< truncated normal, standard deviation sqrt(2 / fan_in)
Initializer lecun_uniform();  ///< uniform in +-sqrt(3 / fan_in)
Initializer lecun_normal();   ///< truncated normal, standard deviation sqrt(1 / fan_in)
/// Orthogonal rows or columns of length `gain`, where the last axis of the shape is one axis and
/// all others are the other (Saxe et al. 2013). float64 is computed in float64, other dtypes in
/// float32. Throws InvalidArgumentError for fewer than two axes.
Initializer orthogonal(double gain = 1.0);

/// The initializer of this name with default arguments. Throws InvalidArgumentError that lists the
/// names.
Initializer from_name(std::string_view name);

}  // namespace initializers
}  // namespace tandem
