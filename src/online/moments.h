// Mean and variance of a program's data.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "tandem/tensor.h"

namespace tandem::online {

// value * scale + shift of each feature: of each position in an example. Empty: unchanged.
struct Affine {
  std::vector<double> scale, shift;
};

// `x` as `dtype`, with `affine` along its last axes. Computed in float64.
Tensor apply(const Affine& affine, const Tensor& x, DType dtype);

// Mean and variance of each feature, over all examples that were observed.
class Moments {
 public:
  explicit Moments(std::size_t features = 0) : mean_(features), m2_(features) {}

  // The moments of packed examples.
  static Moments of(std::span<const double> values, std::size_t features);
  // Adds those of other examples (Chan et al. 1979).
  void add(const Moments& other);

  // Number of values of a feature, mean, sum of squared deviations.
  std::vector<double> numbers() const;
  static Moments from_numbers(std::span<const double> numbers);
  std::size_t features() const { return mean_.size(); }

  // To values of mean 0 and variance 1, and back. Nothing before there are two examples.
  Affine normalizing() const;
  Affine restoring() const;
  // The scales alone: from gradients with respect to normalized values to the program's, and back.
  Affine gradient_to_host() const;
  Affine gradient_from_host() const;

 private:
  double deviation(std::size_t feature) const;

  double count_ = 0.0;
  std::vector<double> mean_, m2_;
};

// The moments of the inputs and targets that were observed.
struct Statistics {
  Moments x, y;
  double samples = 0.0;
};

}  // namespace tandem::online
