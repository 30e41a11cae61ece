#include "op/op.h"

#include <algorithm>

#include "core/status.h"
#include "device/device_manager.h"
#include "device/memory_report.h"
#include "op/scratch_scope.h"

namespace tandem {

KernelContext::KernelContext(const KernelContext& other)
    : op(other.op),
      attrs_data(other.attrs_data),
      native_stream(other.native_stream),
      workspace(other.workspace),
      kept(other.kept),
      inputs(other.inputs),
      outputs(other.outputs) {}

void* KernelContext::scratch(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  if (ScratchScope* scope = ScratchScope::current()) [[unlikely]]
    if (void* memory = scope->take(bytes)) return memory;
  const Scoped tag(memory_tag, MemoryTag::kWorkspace);
  if (!workspace) workspace = &DeviceManager::get().host();
  void* memory = workspace->allocator().allocate(bytes);
  if (!memory)
    throw_out_of_memory(*workspace, {.what = "workspace", .op = op->name, .bytes = bytes});
  scratch_.push_back(memory);
  return memory;
}

void KernelContext::end_call() {
  for (void* memory : scratch_) workspace->allocator().deallocate(memory);
  scratch_.clear();
  keeps_ = 0;
}

std::shared_ptr<void>* KernelContext::keep() {
  if (!kept) return nullptr;
  if (keeps_ == kept->size()) kept->emplace_back();
  return &(*kept)[keeps_++];
}

KernelContext::~KernelContext() { end_call(); }

// Device memory is allocated in the order in which work is enqueued. A deferred kernel runs later
// than that, so it must use the host's allocator.
DeviceImpl& workspace_for(DeviceImpl& device) {
  return device.stream().execution() == Stream::Execution::kDeferred ? DeviceManager::get().host()
                                                                     : device;
}

void InferContext::add_outputs() {
  const bool computes = (op_.traits & (kView | kStorage)) == 0;
  if (computes)
    for (const TensorType* input : inputs) check_computed(input->dtype);
  op_.infer(*this);
  if (computes)
    for (const TensorType& output : outputs) check_computed(output.dtype);
}

void InferContext::check_computed(DType dtype) const {
  if (!is_storage(dtype)) [[likely]]
    return;
  fail<DTypeError>(
      "[{}] expected a dtype to compute with, got {}, which is for storage; cast it first",
      op_.name, name_of(dtype));
}

void InferContext::missing_input(int input) const {
  fail<InvalidArgumentError>("[{}] expected {} or more inputs, got {}", op_.name, input + 1,
                             inputs.size());
}

namespace {

std::string shapes_of(const InferContext& c) {
  std::string text;
  for (const TensorType* input : c.inputs) {
    if (!text.empty()) text += ", ";
    text += input->shape.to_string();
  }
  return text.empty() ? "none" : text;
}

}  // namespace

void InferContext::add_output(DType dtype, const Shape& shape) {
  if (shape.too_large()) [[unlikely]]
    fail<ShapeError>("[{}] expected a result of at most {} elements, got shape {} (inputs: {})",
                     op_.name, kMaxElements, shape.to_string(), shapes_of(*this));
  outputs.push_back({dtype, shape});
}

void InferContext::refuse_size(std::int64_t a, char with, std::int64_t b) const {
  fail<ShapeError>("[{}] expected sizes of at most {}, got {} {} {} (inputs: {})", op_.name,
                   kMaxElements, a, with, b, shapes_of(*this));
}

constinit Registered<std::span<const OpDef* const>()> all_ops("all_ops");

}  // namespace tandem
