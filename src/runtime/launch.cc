#include "runtime/launch.h"

#include <memory>

#include "core/parallel.h"

namespace tandem {
namespace {

void run_inline(KernelFn kernel, KernelContext& context, const Device& device) {
  if (device.intra_op_threads() == intra_op_threads()) {
    kernel(context);
    return;
  }
  ThreadBudget budget(device.intra_op_threads());
  kernel(context);
}

}  // namespace

void launch(KernelFn kernel, KernelContext& context, const AttrsType& attrs_type, Device& device) {
  Stream& stream = device.stream();
  context.workspace = &workspace_for(device);
  switch (stream.execution()) {
    case Stream::Execution::kInline: run_inline(kernel, context, device); break;
    case Stream::Execution::kNative:
      context.native_stream = stream.native_handle();
      kernel(context);
      break;
    case Stream::Execution::kDeferred: {
      struct Kept {
        KernelContext context;
        std::shared_ptr<const void> attrs;
      };
      auto kept = std::make_shared<Kept>(Kept{context, attrs_type.copy(context.attrs_data)});
      kept->context.attrs_data = kept->attrs.get();
      stream.enqueue([kernel, kept] { kernel(kept->context); });
      break;
    }
  }
}

}  // namespace tandem
