// In the place of the other files that begin with `cudnn`, where Tandem is built without it.
#include "ops/cuda/cudnn.h"

namespace tandem::cuda {

CudnnPlan* cudnn_plan(KernelContext&, const CudnnConv&, unsigned) { return nullptr; }
void cudnn_run(KernelContext&, CudnnPlan&, const ConvMemory&) {}
bool cudnn_attention(KernelContext&, const CudnnAttention&, double, const AttentionMemory&) {
  return false;
}

}  // namespace tandem::cuda
