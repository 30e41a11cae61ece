// Operands in the layouts that primitives prefer.
#pragma once

#include <memory>

#include "ops/onednn/primitive.h"
#include "tandem/tensor.h"

namespace tandem::onednn {

// Copies an operand into the layout of a primitive: in each call, or once for elements that do not
// change, such as the weights of a frozen graph. All programs that keep the same share one copy.
// Belongs to the plan of one step or thread.
class Packing {
 public:
  Packing() = default;  // none is needed
  Packing(const memory::desc& plain, const memory::desc& packed);

  // The operand in that layout: itself, a copy that is kept, or one in scratch memory.
  const void* pack(KernelContext& context, const TensorView& operand);
  // The same in scratch memory.
  const void* pack(KernelContext& context, const void* operand) const;
  bool needed() const { return reorder_ != nullptr; }

 private:
  const void* kept_copy(KernelContext& context, const TensorView& operand);

  memory::desc plain_, packed_;
  std::unique_ptr<Executable> reorder_;  // null if the operand is used as it is
  const void* data_ = nullptr;           // of the last operand with a version
  std::uint64_t version_ = 0;
  std::shared_ptr<const Tensor> kept_;  // its copy, if it was packed for good
};

}  // namespace tandem::onednn
