// Matrix products on a GPU, for operations that contain one.
#pragma once

#include "ops/cuda/tf32.h"
#include "ops/math/matrix_product.h"

namespace tandem::cuda {

// matrix_product() on the context's stream; float32 in TF32 if `tf32`.
void matrix_product_on_gpu(KernelContext& context, const MatrixProduct& product,
                           const TensorView& a, const TensorView& b, const TensorView* bias,
                           const TensorView& c, bool tf32 = tf32_products());

// y = activation(x + bias) along the last axis, for a fused activation. `bias` may be null; y may
// be x.
void add_bias(KernelContext& c, const TensorView& x, const TensorView* bias,
              nn::Activation activation, const TensorView& y);

}  // namespace tandem::cuda
