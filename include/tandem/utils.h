/// @file
/// Helpers for data. As tf.keras.utils.
#pragma once

#include <cstdint>
#include <optional>

#include "tandem/tensor.h"

/// Helpers for data. As tf.keras.utils.
namespace tandem::utils {

/// One-hot rows, float32, of class labels of shape [n] or [n, 1] and of any numeric dtype: a result
/// of shape [n, num_classes]. Default of `num_classes`: the largest label plus one. Throws
/// InvalidArgumentError for a label outside [0, num_classes), for other shapes and for bool. As
/// tf.keras.utils.to_categorical.
[[nodiscard]] Tensor to_categorical(const Tensor& labels,
                                    std::optional<std::int64_t> num_classes = std::nullopt);

}  // namespace tandem::utils
