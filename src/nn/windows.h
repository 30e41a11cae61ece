// Pooling and convolution of PyTorch's layout [batch, channels, axes...] with one to three axes.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tandem/padding.h"
#include "tandem/tensor.h"

namespace tandem::nn {

// The windows of pooling: a number per axis.
struct Windows {
  std::vector<std::int64_t> size, stride, padding, dilation;
  bool ceil = false;
  bool count_padding = true;  // of averages
  std::optional<std::int64_t> divisor = {};
};

// Pool `x`, also without the batch axis. Throw "[what] expected ..., got ...".
Tensor max_pooled(const char* what, const Tensor& x, const Windows& windows);
Tensor mean_pooled(const char* what, const Tensor& x, const Windows& windows);

// Maxima and their positions in the axes as one, of which there is no padding; and the reverse,
// zeros elsewhere: `output_size` of each axis, of all, or none.
ValuesAndIndices max_pooled_with_indices(const char* what, const Tensor& x, const Windows& windows);
Tensor max_unpooled(const char* what, const Tensor& x, const Tensor& indices,
                    const Windows& windows, const std::vector<std::int64_t>& output_size);

// The mean or the maximum of windows that cover the axes: `sizes` per axis, of which those that are
// not given stay.
Tensor adaptively_pooled(const char* what, const Tensor& x,
                         const std::vector<std::optional<Dim>>& sizes, bool maximum);

// The batch and the axes, then the channels; and the reverse. REQUIRES: rank 3 to 5.
Tensor channels_last(const Tensor& x);
Tensor channels_first(const Tensor& x);

}  // namespace tandem::nn
