// Replaces the files that begin with `cudnn` if Tandem is built without cuDNN.
#include "ops/cuda/cudnn.h"

namespace tandem::cuda {

CudnnPlan* cudnn_plan(KernelContext&, const CudnnConv&, unsigned) { return nullptr; }
void cudnn_run(KernelContext&, CudnnPlan&, const ConvMemory&) {}
bool cudnn_attention(KernelContext&, const CudnnAttention&, double, const AttentionMemory&) {
  return false;
}

}  // namespace tandem::cuda
