// The entry points of the module libtandem_cuda, which libtandem loads.
#include <vector>

#include "comm/device_arithmetic.h"
#include "device/cuda/module/cuda_gpus.h"
#include "ops/cuda/kernel_list.h"

namespace tandem::cuda {

NativeArithmetic native_arithmetic();  // combine.cu
void register_graph_kernels();         // module/graph_kernels.cc
void register_grouped_update();        // update.cu
void register_chains();                // chain.cu
void register_fused_tiled();           // batch_norm.cu
// Each is defined in the .cu file of that name.
KernelList creation_kernels();
KernelList chain_kernels();
KernelList add_n_kernels();
KernelList compare_kernels();
KernelList reduce_kernels();
KernelList variance_kernels();
KernelList matmul_kernels();
KernelList dense_kernels();
KernelList softmax_kernels();
KernelList update_kernels();
KernelList rearrange_kernels();
KernelList join_kernels();
KernelList index_kernels();
KernelList arg_reduce_kernels();
KernelList cumsum_kernels();
KernelList batch_norm_kernels();
KernelList layer_norm_kernels();
KernelList pool_kernels();
KernelList dropout_kernels();
KernelList lamb_kernels();
KernelList all_finite_kernels();
KernelList pad_kernels();
KernelList gather_grad_kernels();
KernelList random_kernels();
KernelList conv_kernels();
KernelList attention_kernels();

namespace {

constexpr KernelList (*kFamilies[])() = {
    creation_kernels,   chain_kernels,       add_n_kernels,      compare_kernels,
    reduce_kernels,     matmul_kernels,      dense_kernels,      softmax_kernels,
    update_kernels,     rearrange_kernels,   join_kernels,       index_kernels,
    arg_reduce_kernels, cumsum_kernels,      batch_norm_kernels, layer_norm_kernels,
    pool_kernels,       dropout_kernels,     lamb_kernels,       all_finite_kernels,
    pad_kernels,        gather_grad_kernels, random_kernels,     conv_kernels,
    attention_kernels,  variance_kernels};

KernelList all_kernels() {
  static const auto& kernels = *new const std::vector<CudaKernel>([] {
    std::vector<CudaKernel> all;
    for (KernelList (*family)() : kFamilies) {
      const KernelList list = family();
      all.insert(all.end(), list.begin(), list.end());
    }
    return all;
  }());
  return kernels;
}

}  // namespace
}  // namespace tandem::cuda

// Fills in the available GPUs, and registers the kernels if there are any. Throws UnavailableError.
extern "C" __attribute__((visibility("default"))) void tandem_discover_cuda(
    tandem::PhysicalGpus* gpus) {
  *gpus = tandem::cuda::find_gpus();
  if (gpus->empty()) return;
  [[maybe_unused]] static const bool once = [] {
    tandem::register_cuda_kernels(tandem::cuda::all_kernels());
    tandem::cuda::register_graph_kernels();
    tandem::cuda::register_grouped_update();
    tandem::cuda::register_chains();
    tandem::cuda::register_fused_tiled();
    tandem::register_native_arithmetic(tandem::cuda::native_arithmetic());
    return true;
  }();
}

// For tests that inspect the kernels without a GPU.
extern "C" __attribute__((visibility("default"))) void tandem_cuda_kernels(
    std::span<const tandem::CudaKernel>* kernels) {
  *kernels = tandem::cuda::all_kernels();
}
