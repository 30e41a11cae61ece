// Attention through cuDNN.
#include <algorithm>
#include <bit>
#include <limits>

#include "core/log.h"
#include "ops/cuda/module/cudnn_attention_graph.h"
#include "ops/cuda/module/cudnn_plans.h"

namespace tandem::cuda {
namespace {

// Older versions need a workaround for gradients if the number of keys is no multiple of 128, and
// some of them need dquery_sums to be zeroed.
constexpr std::size_t kLeastVersion = 91600;

bool is_new_enough(const CudnnLibrary& library) {
  static const bool result = [&] {
    const std::size_t version = library.version();
    if (version >= kLeastVersion) return true;
    logging::warn(
        "Attention goes through cuDNN from 9.16 on, and this is {}.{}: Tandem's own kernels "
        "compute it, which is slow",
        version / 10000, version / 100 % 100);
    return false;
  }();
  return result;
}

bool is_of_engines(const CudnnAttention& attention) {
  const AttentionSizes& s = attention.sizes;
  const auto fits = [](std::int64_t depth) { return depth > 0 && depth <= 128 && depth % 8 == 0; };
  if (attention.dtype != float16 && attention.dtype != bfloat16) return false;
  if (std::min({s.batch, s.queries, s.keys, s.kv_heads}) == 0) return false;
  if (attention.pass == AttentionPass::kBackward && s.queries == 1 && s.keys == 1) return false;
  return fits(s.depth) && fits(s.value_depth);
}

bool is_aligned(const CudnnAddresses& addresses) {
  return std::ranges::all_of(addresses, [](const void* each) {
    return std::bit_cast<std::uintptr_t>(each) % kAttentionAlignment == 0;
  });
}

std::size_t bytes_of(const TensorDescription& tensor) {
  return static_cast<std::size_t>(tensor.sizes[0] * tensor.strides[0]) * sizeof(float);
}

}  // namespace

bool cudnn_attention(KernelContext& context, const CudnnAttention& attention, double scale,
                     const AttentionMemory& memory) {
  if (!is_of_engines(attention)) return false;
  const CudnnLibrary* const library = cudnn();
  if (!library || !is_new_enough(*library)) return false;
  const AttentionDescription tensors = describe(attention);
  CudnnAddresses addresses{};
  const auto at = [&](std::int64_t id) -> void*& {
    return addresses[static_cast<std::size_t>(id)];
  };
  at(tensors.query.id) = memory.query;
  at(tensors.key.id) = memory.key;
  at(tensors.value.id) = memory.value;
  at(tensors.result.id) = memory.result;
  at(tensors.log_sums.id) = memory.log_sums;
  at(tensors.dresult.id) = memory.dresult;
  at(tensors.dquery.id) = memory.dquery;
  at(tensors.dkey.id) = memory.dkey;
  at(tensors.dvalue.id) = memory.dvalue;
  if (!is_aligned(addresses)) return false;
  CudnnPlan* const plan = CudnnOnDevice::of(*library, device_of(context)).plan(attention);
  if (!plan) return false;
  for (const TensorDescription& each : {tensors.row_products, tensors.dquery_sums})
    if (std::ranges::find(plan->graph.ids, each.id) != plan->graph.ids.end())
      at(each.id) = context.scratch(bytes_of(each));
  auto factor = static_cast<float>(scale);
  float never = -std::numeric_limits<float>::infinity(), one = 1.0f;
  at(kIdScale) = &factor;
  at(kIdNever) = &never;
  at(kIdOne) = &one;
  plan->device->run(*plan, addresses, context.scratch(plan->workspace), stream_of(context));
  return true;
}

}  // namespace tandem::cuda
