// Finding out where training goes wrong.
#pragma once

namespace tandem::debugging {

/// From here on, the first operation that makes a NaN or an infinity throws
/// InvalidArgumentError, as with tf.debugging.enable_check_numerics: "[check_numerics] operation
/// Log of layer 'block/lambda' (forward pass) gave 2 NaN of 8 elements (shape (2, 4), dtype
/// float32); all of its inputs are finite". The message names the operation, its layer, and whether
/// it belongs to the forward or the backward pass; where an input had a NaN already, it says which.
/// An infinity that an input had already, such as that of a mask, is let pass.
///
/// Holds for all threads, for operations that run at once and for functions and steps of fit(),
/// evaluate() and predict(), which are traced anew. Training is slower while it holds. Off by
/// default, at no cost.
void enable_check_numerics();
void disable_check_numerics();
bool check_numerics_enabled();

/// Checks while it lives.
class CheckNumericsScope {
 public:
  CheckNumericsScope();
  ~CheckNumericsScope();
  CheckNumericsScope(const CheckNumericsScope&) = delete;
  CheckNumericsScope& operator=(const CheckNumericsScope&) = delete;

 private:
  bool previous_;
};

}  // namespace tandem::debugging
