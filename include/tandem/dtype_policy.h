/// @file
/// Dtype policies: the dtypes in which layers compute and store their variables. As
/// tf.keras.mixed_precision.
/// @code
/// td::mixed_precision::set_global_policy("mixed_bfloat16");  // of the layers created from here on
/// td::layers::Dense(10, {.dtype = "float32"});               // except for this one
/// @endcode
#pragma once

#include <string>

#include "tandem/dtype.h"

namespace tandem {

/// The dtypes of a layer. As tf.keras.DTypePolicy.
///
/// | name | computes in | variables |
/// | --- | --- | --- |
/// | float32, float64, bfloat16, float16 | that dtype | that dtype |
/// | mixed_bfloat16 | bfloat16 | float32 |
/// | mixed_float16 | float16 | float32 |
///
/// A layer casts its floating inputs and the variables that it reads to the dtype in which it
/// computes. Normalisations read float32 variables. Their sums, those of softmax and those of
/// losses are float32 in any case. mixed_float16 needs optimizers::LossScaleOptimizer(), which
/// Model::compile() adds.
class DTypePolicy {
 public:
  /// Undefined: a layer gets the process's policy.
  DTypePolicy() = default;
  /// @{
  /// The policy of this name. Throws InvalidArgumentError that lists the names.
  DTypePolicy(const char* name) : DTypePolicy(std::string(name)) {}  // NOLINT: implicit
  DTypePolicy(const std::string& name);                              // NOLINT: implicit
  /// @}

  bool defined() const { return !name_.empty(); }     ///< false for a default-constructed one
  const std::string& name() const { return name_; }   ///< name
  DType compute_dtype() const { return compute_; }    ///< dtype of the layer's operations
  DType variable_dtype() const { return variable_; }  ///< dtype of the layer's variables
  /// Whether the layer computes in another dtype than that of its variables.
  bool mixed() const { return compute_ != variable_; }

  /// Whether both have the same name.
  friend bool operator==(const DTypePolicy& a, const DTypePolicy& b) { return a.name_ == b.name_; }

 private:
  std::string name_;
  DType compute_ = float32;
  DType variable_ = float32;
};

/// The process's dtype policy. As tf.keras.mixed_precision.
namespace mixed_precision {

/// Sets the policy of layers that are created afterwards without one. Thread-safe. Throws
/// InvalidArgumentError for an undefined policy.
void set_global_policy(const DTypePolicy& policy);
/// The policy that was set; "float32" by default.
DTypePolicy global_policy();

}  // namespace mixed_precision

}  // namespace tandem
