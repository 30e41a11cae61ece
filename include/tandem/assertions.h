/// @file
/// Assertions about tensors, for tests and debugging. As torch.testing and tf.debugging.
#pragma once

#include <optional>
#include <string>

#include "tandem/tensor.h"

namespace tandem::debugging {

/// Options of assert_close(). As the arguments of torch.testing.assert_close.
struct CloseOptions {
  /// @{
  /// Allowed difference: atol + rtol * |expected|. Default: by the dtype, 1.3e-6 and 1e-5 for
  /// float32, 1e-7 and 1e-7 for float64, 1e-3 and 1e-5 for float16, 1.6e-2 and 1e-5 for bfloat16,
  /// 0 for others. Give both or none.
  std::optional<double> rtol{};
  std::optional<double> atol{};
  /// @}
  bool equal_nan = false;   ///< whether NaN equals NaN
  bool check_dtype = true;  ///< whether dtypes must be equal
};
/// Throws InvalidArgumentError unless the tensors have one shape and close elements; the message
/// has the number of elements that differ and the greatest difference with its position. Waits for
/// the device. As torch.testing.assert_close.
void assert_close(const Tensor& actual, const Tensor& expected, const CloseOptions& options = {});

/// Throws InvalidArgumentError, which begins with `message`, unless both tensors have one dtype,
/// one shape and equal elements. Waits for the device. As tf.debugging.assert_equal, but for
/// broadcasting.
void assert_equal(const Tensor& x, const Tensor& y, const std::string& message = {});
/// @{
/// Throws InvalidArgumentError, which begins with `message` and has the number of elements for
/// which it does not hold, unless x < y, x <= y, x > y or x >= y holds for all elements. The
/// tensors broadcast. Waits for the device. As tf.debugging.assert_less, assert_less_equal, ...
void assert_less(const Tensor& x, const Tensor& y, const std::string& message = {});
void assert_less_equal(const Tensor& x, const Tensor& y, const std::string& message = {});
void assert_greater(const Tensor& x, const Tensor& y, const std::string& message = {});
void assert_greater_equal(const Tensor& x, const Tensor& y, const std::string& message = {});
/// @}
/// Options of assert_near(). As the arguments of tf.debugging.assert_near.
struct NearOptions {
  /// @{
  /// Allowed difference: atol + rtol * |y|. Default: 10 times the distance of 1 from the next
  /// number of the dtype.
  std::optional<double> rtol{};
  std::optional<double> atol{};
  /// @}
  std::string message{};  ///< begins the error
};
/// The same unless elements are close. As tf.debugging.assert_near.
void assert_near(const Tensor& x, const Tensor& y, const NearOptions& options = {});

}  // namespace tandem::debugging
