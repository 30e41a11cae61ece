#include "runtime/launch.h"

#include <memory>

#include "core/parallel.h"
#include "device/device_manager.h"

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
  // Memory of a device is handed out in the order in which its work is enqueued. A deferred kernel
  // asks when that order has long gone on, and is the host's own code: it takes the host's.
  const bool deferred = stream.execution() == Stream::Execution::kDeferred;
  context.workspace = deferred ? &DeviceManager::get().host() : &device;
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
