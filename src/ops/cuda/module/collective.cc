// What the collectives of a graph do before they set out (graph/collective_ops.cc): inputs go to
// where the outputs are, by copies alone.
#include <algorithm>

#include "graph/collective.h"
#include "op/cuda_kernels.h"
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

void register_collective_kernels() {
  for (const OpDef* op : collective_ops())
    register_cuda_kernel(*op, op == &kCollectiveGather ? on_gpu<copy_own>
                              : op == &kCollectiveReceive || op == &kCollectiveBarrier
                                  ? on_gpu<nothing>
                                  : on_gpu<copy_inputs>);
}

}  // namespace tandem::cuda
