// Categories as vectors, for the layers and functions that number things.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tandem/tensor.h"

namespace tandem {

// The option `output_mode`.
enum class OutputMode { kInt, kOneHot, kMultiHot, kCount, kTfIdf };

// The mode of this name, one of those that are `allowed`. Throws InvalidArgumentError otherwise.
OutputMode output_mode_from_name(const std::string& label, const std::string& name,
                                 std::initializer_list<OutputMode> allowed);

// The shape of encoded() for indices of this shape.
Shape encoded_shape(OutputMode mode, const Shape& indices, std::int64_t depth);

// Encodes indices of [0, depth) as vectors of `dtype`; leaves out others, such as -1. kInt returns
// the indices. kCount and kTfIdf sum `weights`, which have the shape of the indices, or ones if
// they are undefined, and multiply the sums by `idf` [depth] if it is defined.
Tensor encoded(OutputMode mode, const Tensor& indices, std::int64_t depth, DType dtype,
               const Tensor& weights = {}, const Tensor& idf = {});

// The float32 vectors [rows, depth] in CPU memory, of rows of different lengths.
Tensor encoded_rows(OutputMode mode, const std::vector<std::vector<std::int64_t>>& rows,
                    std::int64_t depth, const std::vector<double>& idf);

// The elements of a tensor in CPU memory, as other numbers.
std::vector<double> doubles_of(const Tensor& x);
std::vector<std::int64_t> integers_of(const Tensor& x);

}  // namespace tandem
