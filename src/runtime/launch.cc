#include "runtime/launch.h"

#include <memory>
#include <optional>

#include "core/parallel.h"
#include "device/stream_span.h"
#include "op/kernel_event.h"

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

// Runs the kernel later, on the stream's thread. `event`: null unless a profile is taken.
void run_deferred(KernelFn kernel, const KernelContext& context, const AttrsType& attrs_type,
                  Stream& stream, std::unique_ptr<profile::Event> event) {
  struct DeferredCall {
    KernelContext context;
    std::shared_ptr<const void> attrs;
    std::unique_ptr<profile::Event> event;
  };
  auto kept = std::make_shared<DeferredCall>(
      DeferredCall{context, attrs_type.copy(context.attrs_data), std::move(event)});
  kept->context.attrs_data = kept->attrs.get();
  stream.enqueue([kernel, kept] {
    std::optional<profile::Span> span;
    if (kept->event) span.emplace(std::move(*kept->event));
    kernel(kept->context);
  });
}

[[gnu::cold, gnu::noinline]] void launch_profiled(KernelFn kernel, KernelContext& context,
                                                  const AttrsType& attrs_type, Device& device) {
  Stream& stream = device.stream();
  context.workspace = &workspace_for(device);
  switch (stream.execution()) {
    case Stream::Execution::kInline: {
      const profile::Span span(kernel_event(context, device));
      run_inline(kernel, context, device);
      break;
    }
    case Stream::Execution::kNative: {
      const StreamSpan span(device, [&] { return kernel_event(context, device); });
      context.native_stream = stream.native_handle();
      kernel(context);
      break;
    }
    case Stream::Execution::kDeferred:
      run_deferred(kernel, context, attrs_type, stream,
                   std::make_unique<profile::Event>(kernel_event(context, device)));
      break;
  }
}

}  // namespace

void launch(KernelFn kernel, KernelContext& context, const AttrsType& attrs_type, Device& device) {
  if (profile::on()) [[unlikely]]
    return launch_profiled(kernel, context, attrs_type, device);
  Stream& stream = device.stream();
  context.workspace = &workspace_for(device);
  switch (stream.execution()) {
    case Stream::Execution::kInline: run_inline(kernel, context, device); break;
    case Stream::Execution::kNative:
      context.native_stream = stream.native_handle();
      kernel(context);
      break;
    case Stream::Execution::kDeferred:
      run_deferred(kernel, context, attrs_type, stream, nullptr);
      break;
  }
}

}  // namespace tandem
