/// @file
/// Finding NaNs and infinities in training.
#pragma once

/// Debugging aids.
namespace tandem::debugging {

/// From now on, the first operation that produces a NaN or an infinity throws InvalidArgumentError:
/// "[check_numerics] operation Log of layer 'block/lambda' (forward pass) gave 2 NaN of 8 elements
/// (shape (2, 4), dtype float32); all of its inputs are finite". The message names the operation,
/// its layer and the pass; if an input had a NaN already, it says which. Infinities that an input
/// had already, such as those of a mask, are allowed. As tf.debugging.enable_check_numerics.
///
/// Applies to all threads, to eager operations, to functions and to steps of fit(), evaluate() and
/// predict(), which are traced again. Slows down training; costs nothing while disabled (the
/// default).
void enable_check_numerics();
/// Disables the checks. As tf.debugging.disable_check_numerics.
void disable_check_numerics();
/// Whether the checks are enabled.
bool check_numerics_enabled();

/// Enables the checks while it exists.
class CheckNumericsScope {
 public:
  /// Enables the checks.
  CheckNumericsScope();
  /// Restores the previous setting.
  ~CheckNumericsScope();
  CheckNumericsScope(const CheckNumericsScope&) = delete;
  CheckNumericsScope& operator=(const CheckNumericsScope&) = delete;

 private:
  bool previous_;
};

}  // namespace tandem::debugging
