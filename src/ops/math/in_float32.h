// Float16 in CPU kernels, which compute it in float32.
#pragma once

#include "op/op.h"

namespace tandem {

// While it lives, the context's float16 tensors are float32 tensors in scratch memory: the inputs
// converted, and the outputs to be rounded at its end. Programs keep the numbers of constants. Goes
// before the switch of kernels that compute, so that these need no loops on float16. Kernels that
// only move elements do without.
class InFloat32 {
 public:
  // `bfloat16_too`: the same for bfloat16.
  explicit InFloat32(KernelContext& context, bool bfloat16_too = false) {
    const auto replaces = [&](const InlineList<TensorView>& views) {
      for (const TensorView& view : views)
        if (view.dtype == float16 || (bfloat16_too && view.dtype == bfloat16)) return true;
      return false;
    };
    if (replaces(context.inputs) || replaces(context.outputs)) [[unlikely]]
      replace(context, bfloat16_too);
  }
  ~InFloat32() {
    if (originals_.size() > 0) [[unlikely]]
      restore();
  }
  InFloat32(const InFloat32&) = delete;
  InFloat32& operator=(const InFloat32&) = delete;

 private:
  struct Original {
    TensorView* view;
    DType dtype;
    void* data;
    std::uint64_t version;
    bool kept;  // its numbers are
  };
  void replace(KernelContext& context, bool bfloat16_too);
  void restore();
  template <class Part>
  static void convert(const Original& original, const Part& part);
  static void* kept_numbers(KernelContext& context, const Original& original);

  InlineList<Original> originals_;
  int inputs_ = 0;  // come first
};

}  // namespace tandem
