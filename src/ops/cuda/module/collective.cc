// What the collectives of a graph do before they set out (graph/collective_ops.cc): inputs go to
// where the outputs are, by copies alone.
#include <algorithm>

#include "graph/collective.h"
#include "ops/cuda/kernel_list.h"
#include "ops/cuda/launch.h"

namespace tandem::cuda {
namespace {

void copy_view(const KernelContext& c, const TensorView& from, const TensorView& to) {
  const std::size_t bytes = static_cast<std::size_t>(from.size()) * size_of(from.dtype);
  if (bytes > 0 && from.data != to.data)
    check(cudaMemcpyAsync(to.data, from.data, bytes, cudaMemcpyDeviceToDevice, stream_of(c)),
          "cudaMemcpyAsync");
}

void copy_inputs(KernelContext& c) {
  for (int i = 0; i < std::min(c.inputs.size(), c.outputs.size()); ++i)
    copy_view(c, c.inputs[i], c.outputs[i]);
}

void copy_own(KernelContext& c) {
  copy_view(c, c.inputs[0], c.outputs[static_cast<int>(c.attrs<CollectiveGatherAttrs>().rank)]);
}

void nothing(KernelContext&) {}

}  // namespace

KernelList collective_kernels() {
  static constexpr CudaKernel kernels[] = {{"CollectiveReduce", on_gpu<copy_inputs>},
                                           {"CollectiveBroadcast", on_gpu<copy_inputs>},
                                           {"CollectiveReduceTo", on_gpu<copy_inputs>},
                                           {"CollectiveGather", on_gpu<copy_own>},
                                           {"CollectiveReduceScatter", on_gpu<copy_inputs>},
                                           {"CollectiveAllToAll", on_gpu<copy_inputs>},
                                           {"CollectiveSend", on_gpu<copy_inputs>},
                                           {"CollectiveReceive", on_gpu<nothing>},
                                           {"CollectiveBarrier", on_gpu<nothing>}};
  return kernels;
}

}  // namespace tandem::cuda
