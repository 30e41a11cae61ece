#include "online/moments.h"

#include <algorithm>
#include <cmath>

#include "tandem/array.h"
#include "tandem/autodiff.h"
#include "tandem/math.h"

namespace tandem::online {

Tensor apply(const Affine& affine, const Tensor& x, DType dtype) {
  const NoGradScope no_gradients;
  if (affine.scale.empty()) return x.dtype() == dtype ? x : cast(x, dtype);
  const auto features = static_cast<std::int64_t>(affine.scale.size());
  const Tensor rows = reshape(cast(x, float64), {x.shape().num_elements() / features, features});
  const auto vector = [&](const std::vector<double>& numbers) {
    return constant(numbers, {.dtype = float64});
  };
  const Tensor moved = rows * vector(affine.scale) + vector(affine.shift);
  return reshape(cast(moved, dtype), x.shape());
}

Moments Moments::of(std::span<const double> values, std::size_t features) {
  Moments result(features);
  const std::size_t examples = values.size() / std::max<std::size_t>(features, 1);
  result.count_ = static_cast<double>(examples);
  // Two passes: the variance of values far from 0 keeps its digits.
  for (std::size_t i = 0; i < values.size(); ++i) result.mean_[i % features] += values[i];
  for (double& mean : result.mean_) mean /= std::max(result.count_, 1.0);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double deviation = values[i] - result.mean_[i % features];
    result.m2_[i % features] += deviation * deviation;
  }
  return result;
}

void Moments::add(const Moments& other) {
  const double count = count_ + other.count_;
  if (count == 0.0) return;
  for (std::size_t i = 0; i < mean_.size(); ++i) {
    const double distance = other.mean_[i] - mean_[i];
    mean_[i] += distance * other.count_ / count;
    m2_[i] += other.m2_[i] + distance * distance * count_ * other.count_ / count;
  }
  count_ = count;
}

std::vector<double> Moments::numbers() const {
  std::vector<double> numbers{count_};
  numbers.insert(numbers.end(), mean_.begin(), mean_.end());
  numbers.insert(numbers.end(), m2_.begin(), m2_.end());
  return numbers;
}

Moments Moments::from_numbers(std::span<const double> numbers) {
  const std::size_t features = (numbers.size() - 1) / 2;
  Moments result;
  result.count_ = numbers[0];
  result.mean_.assign(numbers.begin() + 1, numbers.begin() + 1 + features);
  result.m2_.assign(numbers.begin() + 1 + features, numbers.end());
  return result;
}

// The standard deviation; 1 for a feature that is constant up to rounding.
double Moments::deviation(std::size_t feature) const {
  const double deviation = std::sqrt(m2_[feature] / count_);
  return deviation > 1e-12 * std::abs(mean_[feature]) ? deviation : 1.0;
}

Affine Moments::normalizing() const {
  Affine affine;
  if (count_ < 2) return affine;
  for (std::size_t i = 0; i < mean_.size(); ++i) {
    affine.scale.push_back(1.0 / deviation(i));
    affine.shift.push_back(-mean_[i] / deviation(i));
  }
  return affine;
}

Affine Moments::restoring() const {
  Affine affine;
  if (count_ < 2) return affine;
  for (std::size_t i = 0; i < mean_.size(); ++i) affine.scale.push_back(deviation(i));
  affine.shift = mean_;
  return affine;
}

Affine Moments::gradient_to_host() const {
  Affine affine = normalizing();
  std::ranges::fill(affine.shift, 0.0);
  return affine;
}

Affine Moments::gradient_from_host() const {
  Affine affine = restoring();
  std::ranges::fill(affine.shift, 0.0);
  return affine;
}

}  // namespace tandem::online
