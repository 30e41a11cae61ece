// GPU kernels of join.cc: cudaMemcpy2DAsync copies many runs in one call.
#include <algorithm>
#include <cstdint>

#include "ops/array/copies.h"
#include "ops/cuda/kernel_list.h"
#include "ops/cuda/launch.h"

namespace tandem::cuda {
namespace {

// Copies `rows` runs of `bytes`, from runs `from_stride` apart to runs `to_stride` apart.
void copy_runs(KernelContext& c, std::byte* to, std::size_t to_stride, const std::byte* from,
               std::size_t from_stride, std::int64_t rows, std::size_t bytes) {
  if (bytes == 0) return;
  // CUDA supports pitches of up to 2 GiB. Rows that are further apart are few.
  if (rows > 1 && std::max(to_stride, from_stride) <= INT32_MAX)
    return check(
        cudaMemcpy2DAsync(to, to_stride, from, from_stride, bytes, static_cast<std::size_t>(rows),
                          cudaMemcpyDeviceToDevice, stream_of(c)),
        "cudaMemcpy2DAsync");
  for (; rows > 0; --rows, to += to_stride, from += from_stride)
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream_of(c)),
          "cudaMemcpyAsync");
}

std::size_t bytes_of_row(const TensorView& tensor, std::int64_t rows) {
  return static_cast<std::size_t>(tensor.size() / rows) * size_of(tensor.dtype);
}

void join_kernel(KernelContext& c) {
  const std::int64_t rows = rows_of_join(c);
  if (rows == 0) return;
  const std::size_t stride = bytes_of_row(c.outputs[0], rows);
  auto* to = c.outputs[0].as<std::byte>();
  for (const TensorView& part : c.inputs) {
    const std::size_t run = bytes_of_row(part, rows);
    copy_runs(c, to, stride, part.as<const std::byte>(), run, rows, run);
    to += run;
  }
}

template <std::int64_t (*kRows)(const KernelContext&)>
void take_kernel(KernelContext& c) {
  const std::int64_t rows = kRows(c);
  if (rows == 0) return;
  const std::size_t stride = bytes_of_row(c.inputs[0], rows);
  const auto* from = c.inputs[0].as<const std::byte>();
  for (const TensorView& part : c.outputs) {
    const std::size_t run = bytes_of_row(part, rows);
    copy_runs(c, part.as<std::byte>(), run, from, stride, rows, run);
    from += run;
  }
}

}  // namespace

KernelList join_kernels() {
  static constexpr CudaKernel kernels[] = {{"ConcatV2", on_gpu<join_kernel>},
                                           {"Pack", on_gpu<join_kernel>},
                                           {"SplitV", on_gpu<take_kernel<rows_of_split>>},
                                           {"Unpack", on_gpu<take_kernel<rows_of_unpack>>}};
  return kernels;
}

}  // namespace tandem::cuda
