// Kernels of operations that occur only in graphs and only copy: assignments, and packing the
// inputs of collectives into their outputs before they are launched (graph/collective.cc).
#include <algorithm>

#include "graph/collective.h"
#include "graph/structural_ops.h"
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

void assign(KernelContext& c) { copy_view(c, c.inputs[1], c.inputs[0]); }

void nothing(KernelContext&) {}

}  // namespace

void register_graph_kernels() {
  register_cuda_kernel(kAssignVariable, on_gpu<assign>);
  for (const OpDef* op : collective_ops())
    register_cuda_kernel(*op, op == &kCollectiveGather ? on_gpu<copy_own>
                              : op == &kCollectiveReceive || op == &kCollectiveBarrier
                                  ? on_gpu<nothing>
                                  : on_gpu<copy_inputs>);
}

}  // namespace tandem::cuda
