#include "ops/math/in_float32.h"

#include "core/parallel.h"
#include "core/widen.h"
#include "ops/math/elementwise.h"

namespace tandem {

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

void InFloat32::replace(KernelContext& context, bool bfloat16_too) {
  const auto replace_in = [&](InlineList<TensorView>& views) {
    for (TensorView& view : views) {
      if (view.dtype != float16 && !(bfloat16_too && view.dtype == bfloat16)) continue;
      originals_.push_back({&view, view.dtype, view.data, view.version});
      view.dtype = float32;
      view.version = 0;
      view.data = context.scratch(static_cast<std::size_t>(view.size()) * sizeof(float));
    }
  };
  replace_in(context.inputs);
  inputs_ = originals_.size();
  replace_in(context.outputs);
  for (int i = 0; i < inputs_; ++i)
    convert(originals_[i], [](const auto* elements, float* numbers, std::int64_t count) {
      widen(elements, numbers, count);
    });
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
