#include "ops/math/in_float32.h"

#include <utility>

#include "core/parallel.h"
#include "core/widen.h"
#include "device/device_manager.h"
#include "op/kept_copies.h"
#include "ops/math/elementwise.h"
#include "tensor/tensor_impl.h"

namespace tandem {
namespace {

constexpr auto kWidenNumbers = [](const auto* elements, float* numbers, std::int64_t count) {
  widen(elements, numbers, count);
};

}  // namespace

// Calls part(elements, numbers, count) for parts of a tensor, in parallel.
template <class Part>
void InFloat32::convert(const Original& original, const Part& part) {
  parallel_for(original.view->size(), kElementwiseGrain, [&](std::int64_t begin, std::int64_t end) {
    float* numbers = original.view->as<float>() + begin;
    if (original.dtype == float16)
      part(static_cast<Half*>(original.data) + begin, numbers, end - begin);
    else
      part(static_cast<BFloat16*>(original.data) + begin, numbers, end - begin);
  });
}

// The numbers of a constant, which programs keep. Null if they are converted in each call.
void* InFloat32::kept_numbers(KernelContext& context, const Original& original) {
  std::shared_ptr<void>* const kept =
      original.version == TensorView::kConstant ? context.keep() : nullptr;
  if (!kept) return nullptr;
  if (*kept) return impl_of(*static_cast<const Tensor*>(kept->get())).data();
  const TensorView constant{original.data, original.dtype, original.view->shape, original.version};
  try {
    const auto numbers = KeptCopies<std::pair<DType, std::int64_t>>::get().find(
        constant, {original.dtype, constant.size()}, [&] {
          const Scoped tag(memory_tag, MemoryTag::kWeights);
          DeviceImpl& device = context.workspace ? *context.workspace : DeviceManager::get().host();
          const Tensor made = make_tensor(device, constant.shape, float32, context.op->name);
          original.view->data = impl_of(made).data();
          convert(original, kWidenNumbers);
          return made;
        });
    *kept = std::const_pointer_cast<Tensor>(numbers);
    return impl_of(*numbers).data();
  } catch (const ResourceExhaustedError&) {
    return nullptr;
  }
}

void InFloat32::replace(KernelContext& context, bool bfloat16_too) {
  const auto replace_in = [&](InlineList<TensorView>& views) {
    for (TensorView& view : views) {
      if (view.dtype != float16 && !(bfloat16_too && view.dtype == bfloat16)) continue;
      originals_.push_back({&view, view.dtype, view.data, view.version, false});
      Original& original = originals_[originals_.size() - 1];
      view.dtype = float32;
      void* const kept = kept_numbers(context, original);
      original.kept = kept != nullptr;
      view.version = kept ? TensorView::kConstant : 0;
      view.data =
          kept ? kept : context.scratch(static_cast<std::size_t>(view.size()) * sizeof(float));
    }
  };
  replace_in(context.inputs);
  inputs_ = originals_.size();
  replace_in(context.outputs);
  for (int i = 0; i < inputs_; ++i)
    if (!originals_[i].kept) convert(originals_[i], kWidenNumbers);
}

void InFloat32::restore() {
  for (int i = 0; i < originals_.size(); ++i) {
    const Original& original = originals_[i];
    if (i >= inputs_)
      convert(original, [](auto* elements, const float* numbers, std::int64_t count) {
        narrow(numbers, elements, count);
      });
    original.view->dtype = original.dtype;
    original.view->data = original.data;
    original.view->version = original.version;
  }
}

}  // namespace tandem
