// Matrix products on a GPU: through cuBLASLt, with the bias and a ReLU fused. Other activations run
// as a separate kernel.
#include "ops/math/matrix_product_on_gpu.h"

#include "ops/cuda/blas.h"
#include "ops/cuda/elements.cuh"
#include "ops/formula/activations.h"

namespace tandem::cuda {
namespace {

// The activations for which nn::is_fused() is true.
template <class T>
__device__ T activated(nn::Activation activation, T x) {
  switch (activation) {
    case nn::Activation::kRelu: return Relu::value(x);
    case nn::Activation::kRelu6: return Relu6::value(x);
    case nn::Activation::kElu: return Elu::value(x, T(1));
    case nn::Activation::kSigmoid: return prim::sigmoid(x);
    case nn::Activation::kTanh: return prim::tanh(x);
    default: return x;
  }
}

// y = activation(x + bias) over rows of `columns`; `bias` may be null.
template <class T>
__global__ void __launch_bounds__(kThreads)
    bias_activation(const T* x, const T* bias, T* y, std::int64_t size, std::int64_t columns,
                    nn::Activation activation) {
  constexpr int kCount = kPackOf<T>;
  const MyPack<kCount> mine(size);
  if (mine.count == 0) return;
  auto pack = load_pack<kCount>(x, mine.begin, mine.count);
  std::int64_t column = mine.begin % columns;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    auto value = load_as(pack.at[i]);
    if (bias) value += load_as(bias[column]);
    if (++column == columns) column = 0;
    pack.at[i] = store_as<T>(activated(activation, value));
  }
  store_pack(y, mine.begin, mine.count, pack);
}

}  // namespace

void add_bias(KernelContext& c, const TensorView& x, const TensorView* bias,
              nn::Activation activation, const TensorView& y) {
  const std::int64_t size = x.size();
  if (size == 0) return;
  switch_floating(x.dtype, [&]<class T>(Type<T>) {
    constexpr int kCount = kPackOf<T>;
    launch(c, {.blocks = blocks_for((size + kCount - 1) / kCount)}, bias_activation<T>,
           x.as<const T>(), bias ? bias->as<const T>() : nullptr, y.as<T>(), size, x.shape.word(-1),
           activation);
  });
}

void matrix_product_on_gpu(KernelContext& context, const MatrixProduct& product,
                           const TensorView& a, const TensorView& b, const TensorView* bias,
                           const TensorView& c, bool tf32) {
  if (c.size() == 0) return;
  const auto [m, n, k, batch] = ProductSizes(product, a.shape, b.shape, c.shape);
  // The pass of an activation adds the bias, too. (cuBLAS has ReLU, but may make 0 of NaN.)
  bool in_product = bias && k > 0 && c.dtype != float64 &&
                    product.activation == nn::Activation::kLinear &&
                    reinterpret_cast<std::uintptr_t>(bias->data) % 16 == 0;
  if (k == 0) {
    check(cudaMemsetAsync(c.data, 0, static_cast<std::size_t>(c.size()) * size_of(c.dtype),
                          stream_of(context)),
          "cudaMemsetAsync");
  } else {
    // The last leading axis is cuBLAS's batch. The others are iterated; most products have none.
    const int last = batch.a.size() - 1;
    const std::int64_t size_a = last < 0 ? 1 : batch.a[last], size_b = last < 0 ? 1 : batch.b[last];
    const std::int64_t together = std::max(size_a, size_b);
    BlasProduct each = {.dtype = c.dtype,
                        .m = m,
                        .n = n,
                        .k = k,
                        .transpose_a = product.transpose_a,
                        .transpose_b = product.transpose_b,
                        .batch = together,
                        .stride_a = size_a == 1 ? 0 : m * k,
                        .stride_b = size_b == 1 ? 0 : n * k,
                        .bias = in_product ? bias->data : nullptr,
                        .tf32 = tf32};
    const auto bytes = static_cast<std::int64_t>(size_of(c.dtype));
    for (std::int64_t i = 0; i < batch.count; i += together) {
      const auto [at_a, at_b] = batch.operands(i);
      const auto run = [&, at_a = at_a, at_b = at_b] {
        return blas_product(context, each, a.as<const std::byte>() + at_a * m * k * bytes,
                            b.as<const std::byte>() + at_b * n * k * bytes,
                            c.as<std::byte>() + i * m * n * bytes);
      };
      while (!run()) {  // only layers fuse a bias; they have a single product
        in_product = false;
        each.bias = nullptr;
      }
    }
  }
  if (!in_product && (bias || product.activation != nn::Activation::kLinear))
    add_bias(context, c, bias, product.activation, c);
}

}  // namespace tandem::cuda
