// GPU kernels of conv.cc. 1 x 1 windows are matrix products by cuBLASLt in Tandem's layout. Others
// use cuDNN, whose kernels have the layout [out, kh, kw, in].
#include "ops/nn/conv.h"

#include <bit>

#include "ops/cuda/cudnn.h"
#include "ops/cuda/kernel_list.h"
#include "ops/cuda/tf32.h"
#include "ops/math/matrix_product_on_gpu.h"
#include "ops/nn/conv_direct.cuh"
#include "ops/nn/dense.h"

namespace tandem::cuda {
namespace {

constexpr int kSide = 32;  // rows and columns of a tile
constexpr int kTileRows = kThreads / kSide;

// to [columns, rows] = from [rows, columns], tile by tile.
template <class T>
__global__ void __launch_bounds__(kThreads)
    transpose_matrix(const T* from, std::int64_t rows, std::int64_t columns, T* to) {
  __shared__ T tile[kSide][kSide + 1];
  const std::int64_t across = (columns + kSide - 1) / kSide;
  const std::int64_t row = blockIdx.x / across * kSide, column = blockIdx.x % across * kSide;
  const int x = threadIdx.x % kSide, y = threadIdx.x / kSide;
  for (int i = y; i < kSide; i += kTileRows)
    if (row + i < rows && column + x < columns) tile[i][x] = from[(row + i) * columns + column + x];
  __syncthreads();
  for (int i = y; i < kSide; i += kTileRows)
    if (column + i < columns && row + x < rows) to[(column + i) * rows + row + x] = tile[x][i];
}

void transpose_on(KernelContext& c, DType dtype, const void* from, std::int64_t rows,
                  std::int64_t columns, void* to) {
  const std::int64_t tiles = (rows + kSide - 1) / kSide * ((columns + kSide - 1) / kSide);
  switch_floating(dtype, [&]<class T>(Type<T>) {
    launch(c, {.blocks = static_cast<unsigned>(tiles)}, transpose_matrix<T>,
           static_cast<const T*>(from), rows, columns, static_cast<T*>(to));
  });
}

// Converts a kernel from Tandem's layout, [kh * kw * in / groups, out], to cuDNN's.
struct KernelMatrix {
  DType dtype;
  std::int64_t taps, out;

  explicit KernelMatrix(const ConvShape& s)
      : dtype(s.dtype), taps(s.kh * s.kw * (s.in / s.groups)), out(s.out) {}
  bool same_in_both() const { return taps == 1 || out == 1; }
  void* scratch(KernelContext& c) const {
    return c.scratch(static_cast<std::size_t>(taps * out) * size_of(dtype));
  }
};

// to [n, to_h, to_w, channels] = the part of from [n, h, w, channels] that begins at (row, column),
// and zeros outside of it. One thread per element.
template <class T>
__global__ void __launch_bounds__(kThreads)
    move_images(const T* from, std::int64_t h, std::int64_t w, std::int64_t row,
                std::int64_t column, std::int64_t channels, T* to, std::int64_t to_h,
                std::int64_t to_w, std::int64_t elements) {
  const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (index >= elements) return;
  const std::int64_t pixel = index / channels, x = pixel % to_w + column,
                     y = pixel / to_w % to_h + row, image = pixel / (to_w * to_h);
  const bool inside = y >= 0 && y < h && x >= 0 && x < w;
  to[index] = inside ? from[((image * h + y) * w + x) * channels + index % channels] : T{};
}

// The images that cuDNN sees, which have a border of zeros where padding is not even.
struct EvenImages {
  ConvShape given, even;

  explicit EvenImages(const ConvShape& s) : given(s), even(with_even_padding(s)) {}

  bool same() const { return given.h == even.h && given.w == even.w; }
  std::int64_t top() const { return given.pad_top - even.pad_top; }
  std::int64_t left() const { return given.pad_left - even.pad_left; }
  std::int64_t elements() const { return even.n * even.h * even.w * even.in; }
  void* scratch(KernelContext& c) const {
    return c.scratch(static_cast<std::size_t>(elements()) * size_of(even.dtype));
  }
  // `x`, or a copy with the border.
  void* widened(KernelContext& c, const TensorView& x) const {
    if (same()) return x.data;
    void* to = scratch(c);
    switch_floating(even.dtype, [&]<class T>(Type<T>) {
      launch(c, {.blocks = blocks_for(elements())}, move_images<T>, x.as<const T>(), given.h,
             given.w, -top(), -left(), even.in, static_cast<T*>(to), even.h, even.w, elements());
    });
    return to;
  }
  // Copies to `x` without the border.
  void narrow(KernelContext& c, const void* from, const TensorView& x) const {
    switch_floating(even.dtype, [&]<class T>(Type<T>) {
      launch(c, {.blocks = blocks_for(x.size())}, move_images<T>, static_cast<const T*>(from),
             even.h, even.w, top(), left(), even.in, x.as<T>(), given.h, given.w, x.size());
    });
  }
};

unsigned alignment_of(const TensorView& view) {
  const auto address = reinterpret_cast<std::uintptr_t>(view.data);
  return 1u << std::min(4, std::countr_zero(address));
}
template <class... Views>
unsigned common_alignment(const Views&... views) {
  return std::min({alignment_of(views)...});
}

// Whether each output pixel depends on exactly one input pixel and vice versa: nothing is padded.
bool is_matrix_product(const ConvShape& s) {
  return s.kh == 1 && s.kw == 1 && s.stride_h == 1 && s.stride_w == 1 && s.groups == 1 &&
         s.oh == s.h && s.ow == s.w;
}
TensorView as_matrix(const TensorView& kernel) {
  return {kernel.data, kernel.dtype, Shape{kernel.shape.word(2), kernel.shape.word(3)}};
}

void set_to_zero(KernelContext& c, const TensorView& view) {
  const std::size_t bytes = static_cast<std::size_t>(view.size()) * size_of(view.dtype);
  if (bytes > 0) check(cudaMemsetAsync(view.data, 0, bytes, stream_of(c)), "cudaMemsetAsync");
}

bool try_cudnn_forward(KernelContext& c, const ConvShape& shape, const TensorView* bias,
                       nn::Activation activation) {
  const TensorView &x = c.inputs[0], &kernel = c.inputs[1], &y = c.outputs[0];
  const unsigned alignment =
      bias ? common_alignment(x, kernel, y, *bias) : common_alignment(x, kernel, y);
  const bool known = activation == nn::Activation::kLinear || activation == nn::Activation::kRelu ||
                     activation == nn::Activation::kRelu6;
  const EvenImages images(shape);
  CudnnConv conv = {.shape = images.even,
                    .bias = bias != nullptr,
                    .activation = known ? activation : nn::Activation::kLinear};
  CudnnPlan* plan = cudnn_plan(c, conv, alignment);
  const bool in_plan = plan != nullptr;
  if (!plan && (conv.bias || conv.activation != nn::Activation::kLinear)) {
    conv.bias = false;
    conv.activation = nn::Activation::kLinear;
    plan = cudnn_plan(c, conv, alignment);
  }
  if (!plan) return false;
  const KernelMatrix matrix(shape);
  void* taps = kernel.data;
  if (!matrix.same_in_both()) {
    taps = matrix.scratch(c);
    transpose_on(c, matrix.dtype, kernel.data, matrix.taps, matrix.out, taps);
  }
  cudnn_run(c, *plan,
            {.x = images.widened(c, x),
             .kernel = taps,
             .y = y.data,
             .bias = conv.bias ? bias->data : nullptr});
  const TensorView* left = in_plan ? nullptr : bias;
  const nn::Activation after = in_plan && known ? nn::Activation::kLinear : activation;
  if (left || after != nn::Activation::kLinear) add_bias(c, y, left, after, y);
  return true;
}

void conv_kernel(KernelContext& c) {
  const TensorView &x = c.inputs[0], &kernel = c.inputs[1], &y = c.outputs[0];
  if (y.size() == 0) return;
  const auto& attrs = c.attrs<ConvAttrs>();
  const TensorView* bias = c.inputs.size() == 3 ? &c.inputs[2] : nullptr;
  const ConvShape shape = conv_shape("", attrs, x.dtype, x.shape, kernel.shape);
  if (is_matrix_product(shape))
    return matrix_product_on_gpu(c, {.activation = attrs.activation}, as_rows(x), as_matrix(kernel),
                                 bias, as_rows(y), tf32_convolutions());
  if (try_cudnn_forward(c, shape, bias, attrs.activation)) return;
  switch_floating(x.dtype, [&]<class T>(Type<T>) {
    launch(c, {.blocks = blocks_for(y.size())}, conv_forward_direct<T>, shape, x.as<const T>(),
           kernel.as<const T>(), y.as<T>());
  });
  if (bias || attrs.activation != nn::Activation::kLinear)
    add_bias(c, y, bias, attrs.activation, y);
}

void backprop_input_kernel(KernelContext& c) {
  const TensorView &dy = c.inputs[0], &kernel = c.inputs[1], &dx = c.outputs[0];
  if (dx.size() == 0 || dy.size() == 0) return set_to_zero(c, dx);
  const ConvShape shape = conv_shape("", c.attrs<ConvAttrs>(), dy.dtype, dx.shape, kernel.shape);
  if (is_matrix_product(shape))
    return matrix_product_on_gpu(c, {.transpose_b = true}, as_rows(dy), as_matrix(kernel), nullptr,
                                 as_rows(dx), tf32_convolutions());
  const EvenImages images(shape);
  CudnnPlan* plan = cudnn_plan(c, {.pass = ConvPass::kBackwardInput, .shape = images.even},
                               common_alignment(dy, kernel, dx));
  if (plan) {
    const KernelMatrix matrix(shape);
    void* taps = kernel.data;
    if (!matrix.same_in_both()) {
      taps = matrix.scratch(c);
      transpose_on(c, matrix.dtype, kernel.data, matrix.taps, matrix.out, taps);
    }
    void* to = images.same() ? dx.data : images.scratch(c);
    cudnn_run(c, *plan, {.x = to, .kernel = taps, .y = dy.data});
    if (to != dx.data) images.narrow(c, to, dx);
    return;
  }
  switch_floating(dy.dtype, [&]<class T>(Type<T>) {
    launch(c, {.blocks = blocks_for(dx.size())}, conv_backward_input_direct<T>, shape,
           dy.as<const T>(), kernel.as<const T>(), dx.as<T>());
  });
}

void backprop_filter_kernel(KernelContext& c) {
  const TensorView &x = c.inputs[0], &dy = c.inputs[1], &dkernel = c.outputs[0];
  if (x.size() == 0 || dy.size() == 0) return set_to_zero(c, dkernel);
  const ConvShape shape = conv_shape("", c.attrs<ConvAttrs>(), x.dtype, x.shape, dkernel.shape);
  if (is_matrix_product(shape))
    return matrix_product_on_gpu(c, {.transpose_a = true}, as_rows(x), as_rows(dy), nullptr,
                                 as_matrix(dkernel), tf32_convolutions());
  const EvenImages images(shape);
  CudnnPlan* plan = cudnn_plan(c, {.pass = ConvPass::kBackwardFilter, .shape = images.even},
                               common_alignment(x, dy, dkernel));
  if (plan) {
    const KernelMatrix matrix(shape);
    void* taps = matrix.same_in_both() ? dkernel.data : matrix.scratch(c);
    cudnn_run(c, *plan, {.x = images.widened(c, x), .kernel = taps, .y = dy.data});
    if (taps != dkernel.data)
      transpose_on(c, matrix.dtype, taps, matrix.out, matrix.taps, dkernel.data);
    return;
  }
  constexpr std::int64_t kEnough = std::int64_t{1} << 18;  // threads for any GPU
  const std::int64_t rows = shape.n * shape.oh;
  std::int64_t pieces = std::clamp<std::int64_t>(kEnough / dkernel.size(), 1, rows);
  const std::int64_t piece = (rows + pieces - 1) / pieces;
  pieces = (rows + piece - 1) / piece;
  switch_floating(x.dtype, [&]<class T>(Type<T>) {
    auto* sums = static_cast<ComputeOf<T>*>(
        c.scratch(static_cast<std::size_t>(pieces * dkernel.size()) * sizeof(ComputeOf<T>)));
    launch(c, {.blocks = blocks_for(pieces * dkernel.size())}, conv_backward_filter_direct<T>,
           shape, pieces, piece, x.as<const T>(), dy.as<const T>(), sums);
    launch(c, {.blocks = blocks_for(dkernel.size())}, add_pieces<T>, sums, pieces, dkernel.size(),
           dkernel.as<T>());
  });
}

}  // namespace

KernelList conv_kernels() {
  static constexpr CudaKernel kernels[] = {
      {"Conv2D", on_gpu<conv_kernel>},
      {"FusedConv2D", on_gpu<conv_kernel>},
      {"Conv2DBackpropInput", on_gpu<backprop_input_kernel>},
      {"Conv2DBackpropFilter", on_gpu<backprop_filter_kernel>}};
  return kernels;
}

}  // namespace tandem::cuda
