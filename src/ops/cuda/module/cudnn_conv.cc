// Convolutions through cuDNN.
#include "ops/cuda/module/cudnn_conv_graph.h"
#include "ops/cuda/module/cudnn_plans.h"

namespace tandem::cuda {

CudnnPlan* cudnn_plan(KernelContext& context, const CudnnConv& conv, unsigned alignment) {
  const CudnnLibrary* const library = cudnn();
  if (!library) return nullptr;
  return CudnnOnDevice::of(*library, device_of(context)).plan(conv, alignment);
}

void cudnn_run(KernelContext& context, CudnnPlan& plan, const ConvMemory& memory) {
  CudnnAddresses addresses{};
  addresses[kIdX] = memory.x;
  addresses[kIdKernel] = memory.kernel;
  addresses[kIdY] = memory.y;
  addresses[kIdBias] = memory.bias;
  plan.device->run(plan, addresses, context.scratch(plan.workspace), stream_of(context));
}

}  // namespace tandem::cuda
