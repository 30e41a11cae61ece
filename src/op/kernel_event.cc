#include "op/kernel_event.h"

namespace tandem {
namespace {

void append(std::string& text, const InlineList<TensorView>& views) {
  for (int i = 0; i < views.size(); ++i) {
    if (i > 0) text += ", ";
    text += views[i].shape.to_string();
  }
}

}  // namespace

profile::Event kernel_event(const KernelContext& context, const DeviceImpl& device,
                            const std::string& node) {
  profile::Event event{.name = std::string(context.op->name),
                       .lane = profile::Lane::kKernels,
                       .device = &device.full_name(),
                       .node = node};
  append(event.shapes, context.inputs);
  event.shapes += event.shapes.empty() ? "-> " : " -> ";
  append(event.shapes, context.outputs);
  return event;
}

}  // namespace tandem
