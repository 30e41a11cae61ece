/// @file
/// Padding of tensors with elements of their own. As tf.pad and torch.nn.functional.pad.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tandem/array.h"
#include "tandem/tensor.h"

namespace tandem {

/// Which elements padding has: a value, or its name in any case.
class PaddingMode {
 public:
  /// The modes, with the result for 0 1 2 and two elements on each side.
  enum Value {
    kConstant,   ///< one value: v v 0 1 2 v v
    kReflect,    ///< the elements in reverse, without the one at the edge: 2 1 0 1 2 1 0
    kSymmetric,  ///< the elements in reverse: 1 0 0 1 2 2 1
    kReplicate,  ///< the one at the edge: 0 0 0 1 2 2 2
    kCircular    ///< those of the other end: 1 2 0 1 2 0 1
  };
  PaddingMode() = default;  ///< kConstant
  /// One of the values.
  PaddingMode(Value value) : value_(value) {}  // NOLINT: implicit
  /// @{
  /// "constant" or "zeros", "reflect", "symmetric", "replicate" or "circular". Throws
  /// InvalidArgumentError for another name.
  PaddingMode(const char* name) : PaddingMode(std::string_view(name)) {}         // NOLINT: implicit
  PaddingMode(const std::string& name) : PaddingMode(std::string_view(name)) {}  // NOLINT: implicit
  PaddingMode(std::string_view name);                                            // NOLINT: implicit
  /// @}
  Value value() const { return value_; }  ///< the value

 private:
  Value value_ = kConstant;
};

/// Adds elements that `mode` chooses before and after each axis, with zeros for "constant";
/// `paddings` has one pair (before, after) per axis. Throws InvalidArgumentError for padding that
/// has more elements than there are: size - 1 for "reflect", the size for "symmetric" and
/// "circular". As tf.pad.
[[nodiscard]] Tensor pad(const Tensor& x,
                         const std::vector<std::pair<std::int64_t, std::int64_t>>& paddings,
                         PaddingMode mode);

namespace nn::functional {
/// The same with PyTorch's arguments: pairs (before, after) of the last axis, of the one before it,
/// and so on. Negative numbers remove elements. `value`: that of "constant". Throws as
/// tandem::pad(). As torch.nn.functional.pad.
[[nodiscard]] Tensor pad(const Tensor& x, const std::vector<std::int64_t>& padding,
                         PaddingMode mode = {}, double value = 0.0);
}  // namespace nn::functional

}  // namespace tandem
