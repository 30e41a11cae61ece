/// @file
/// Regularizers: penalties on variables that training adds to the loss. As tf.keras.regularizers.
#pragma once

#include <concepts>
#include <functional>
#include <type_traits>
#include <utility>

#include "tandem/tensor.h"

namespace tandem {

/// Computes a scalar penalty of a variable's value, which fit() and train_on_batch() add to the
/// loss. A value; thread-safe. As tf.keras.regularizers.Regularizer.
class Regularizer {
 public:
  Regularizer() = default;  ///< none
  /// The regularizer of this name ("l1", "l2", "l1_l2") with default arguments. Throws
  /// InvalidArgumentError that lists the names.
  Regularizer(const char* name);  // NOLINT: a name stands for it
  /// A function of the value that returns a scalar.
  template <class F>
  requires(std::is_invocable_r_v<Tensor, const F&, const Tensor&> &&
           !std::derived_from<F, Regularizer>) Regularizer(F penalty)  // NOLINT: stands for it
      : penalty_(std::move(penalty)) {}

  bool defined() const { return static_cast<bool>(penalty_); }  ///< whether there is a penalty
  /// The penalty, in the value's dtype. Throws ShapeError unless it is a scalar.
  Tensor operator()(const Tensor& value) const;

 private:
  std::function<Tensor(const Tensor& value)> penalty_;
};

/// Regularizers. As tf.keras.regularizers.
namespace regularizers {

using tandem::Regularizer;  ///< the base of all

/// Options of L1.
struct L1Options {
  double l1 = 0.01;  ///< factor
};
/// The sum of absolute values, times `l1`. As tf.keras.regularizers.L1.
class L1 : public Regularizer {
 public:
  /// With this factor.
  explicit L1(double l1 = 0.01);
  /// The same.
  template <std::same_as<L1Options> Options = L1Options>
  explicit L1(const Options& options) : L1(options.l1) {}
};
/// Options of L2.
struct L2Options {
  double l2 = 0.01;  ///< factor
};
/// The sum of squares, times `l2`. As tf.keras.regularizers.L2.
class L2 : public Regularizer {
 public:
  /// With this factor.
  explicit L2(double l2 = 0.01);
  /// The same.
  template <std::same_as<L2Options> Options = L2Options>
  explicit L2(const Options& options) : L2(options.l2) {}
};
/// Options of L1L2.
struct L1L2Options {
  double l1 = 0.0;  ///< factor of the absolute values
  double l2 = 0.0;  ///< factor of the squares
};
/// The sum of both. As tf.keras.regularizers.L1L2.
class L1L2 : public Regularizer {
 public:
  /// With these factors.
  explicit L1L2(double l1 = 0.0, double l2 = 0.0);
  /// The same.
  template <std::same_as<L1L2Options> Options = L1L2Options>
  explicit L1L2(const Options& options) : L1L2(options.l1, options.l2) {}
};

}  // namespace regularizers
}  // namespace tandem
