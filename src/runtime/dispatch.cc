#include "runtime/dispatch.h"

#include <memory>
#include <optional>

#include "core/callers.h"
#include "core/parallel.h"
#include "core/status.h"
#include "device/stream_span.h"
#include "op/find_kernel.h"
#include "op/kernel_event.h"
#include "op/numerics.h"
#include "op/record.h"
#include "runtime/autocast.h"
#include "runtime/check_results.h"
#include "runtime/gradient_buffer.h"
#include "runtime/placement.h"
#include "runtime/trace.h"

namespace tandem {
namespace {

void run_inline(KernelFn kernel, KernelContext& context, const DeviceImpl& device) {
  const Caller caller;
  const int threads = caller.share(device.intra_op_threads());
  if (may_compute(threads)) {
    kernel(context);
    return;
  }
  ThreadBudget budget(threads);
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
                                                  const AttrsType& attrs_type, DeviceImpl& device) {
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

// Runs `kernel` on `device`'s stream. A CPU runs it at once. An emulated GPU runs it later on the
// stream's thread; the context and its attributes are kept until then. On CUDA the kernel itself
// enqueues its work.
void launch(KernelFn kernel, KernelContext& context, const AttrsType& attrs_type,
            DeviceImpl& device) {
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

// Dispatches one operation.
class Dispatch {
 public:
  Dispatch(const OpDef& op, std::span<const Tensor* const> inputs, AttrsRef attrs)
      : op_(op), attrs_(attrs), infer_(op, attrs), inputs_(inputs) {
    for (const Tensor* input : inputs) infer_.inputs.push_back(&impl_of(*input));
    infer_.add_outputs();
    device_ = &place(op, inputs);
    log_execution(op.name, *device_);
    move_inputs();
  }

  int num_outputs() const { return infer_.outputs.size(); }

  // `give_first`: input 0 was moved in.
  void run(std::span<Tensor> outputs, bool give_first = false) {
    const bool records = context.records && op_.gradient && any_tracked();
    if ((op_.traits & kView) != 0) {
      const std::int64_t offset = op_.view_offset ? op_.view_offset(infer_) : 0;
      outputs[0] = make_view(*inputs_[0], infer_.outputs[0].shape, offset);
    } else {
      for (std::size_t i = 0; i < outputs.size(); ++i) {
        const TensorType& spec = infer_.outputs[static_cast<int>(i)];
        if (i == 0 && context.open_buffer) [[unlikely]]
          outputs[0] = take_gradient_buffer(spec, *device_);
        if (outputs[i].defined()) continue;
        outputs[i] = i == 0 && give_first && reusable(spec, records)
                         ? make_alias(*inputs_[0])
                         : make_tensor(*device_, spec.shape, spec.dtype, op_.name);
      }
      run_kernel(outputs);
      if (checks_numerics()) [[unlikely]]
        check_results(op_, inputs_, outputs);
    }
    if (records)
      record(op_, attrs_, inputs_, outputs, device_);
    else if (of_ended_) [[unlikely]]
      pass_on_end(inputs_, outputs);
  }

 private:
  void move_inputs() {
    for (const Tensor* input : inputs_)
      if (&impl_of(*input).device() != device_) {
        move_some();
        return;
      }
  }

  // Copies inputs from other devices. The copy has the gradient edge of the original.
  void move_some() {
    moved_.reserve(inputs_.size());
    moved_pointers_.reserve(inputs_.size());
    for (const Tensor* input : inputs_) {
      Tensor copy = copy_to_device(*input, *device_);
      if (!(copy.handle() == input->handle())) impl_of(copy).grad = impl_of(*input).grad;
      moved_.push_back(std::move(copy));
    }
    for (const Tensor& tensor : moved_) moved_pointers_.push_back(&tensor);
    inputs_ = moved_pointers_;
  }

  // Whether output 0 may reuse the memory of input 0, which was moved in.
  bool reusable(const TensorType& output, bool records) const {
    const TensorImpl& first = impl_of(*inputs_[0]);
    return (op_.traits & kInPlace) != 0 && tandem::reusable(first) && first.dtype == output.dtype &&
           first.shape == output.shape && !(records && (op_.saved_inputs & 1u) != 0);
  }

  bool any_tracked() {
    for (const Tensor* input : inputs_) {
      const GradEdge& edge = impl_of(*input).grad;
      if (is_constant(edge)) continue;
      if (!is_dead_end(edge)) return true;
      of_ended_ = true;
    }
    return false;
  }

  void run_kernel(std::span<Tensor> outputs) {
    KernelContext context;
    context.op = &op_;
    context.attrs_data = attrs_.data;
    const auto add = [](InlineList<TensorView>& views, const Tensor& tensor) {
      const TensorImpl& impl = impl_of(tensor);
      views.push_back({impl.data(), impl.dtype, impl.shape});
    };
    for (const Tensor* input : inputs_) add(context.inputs, *input);
    for (const Tensor& output : outputs) add(context.outputs, output);
    const KernelFn kernel = find_kernel(op_, device_->backend());
    if (!kernel) [[unlikely]]  // a variable that the operation writes determines its device
      fail<InvalidArgumentError>(
          "[{}] is to write a variable on {}, and has no kernel for such devices: create the "
          "variable on a CPU",
          op_.name, device_->full_name());
    launch(kernel, context, *attrs_.type, *device_);
  }

  const OpDef& op_;
  AttrsRef attrs_;
  InferContext infer_;
  std::span<const Tensor* const> inputs_;
  DeviceImpl* device_;
  bool of_ended_ = false;  // whether an input is a dead end; set by any_tracked()
  std::vector<Tensor> moved_;
  std::vector<const Tensor*> moved_pointers_;
};

InlineList<const Tensor*> joined(const Tensor& first, std::initializer_list<const Tensor*> rest) {
  InlineList<const Tensor*> inputs;
  inputs.push_back(&first);
  for (const Tensor* tensor : rest) inputs.push_back(tensor);
  return inputs;
}

}  // namespace

std::vector<Tensor> run_op(const OpDef& op, std::span<const Tensor* const> inputs, AttrsRef attrs) {
  if (context.autocast) [[unlikely]]
    if (const AutocastInputs cast(op, inputs); cast.changed()) return run_op(op, cast.get(), attrs);
  if (context.graph) [[unlikely]]
    return trace_op(op, inputs, attrs);
  Dispatch dispatch(op, inputs, attrs);
  std::vector<Tensor> outputs(static_cast<std::size_t>(dispatch.num_outputs()));
  dispatch.run(outputs);
  return outputs;
}

Tensor run_single(const OpDef& op, std::span<const Tensor* const> inputs, AttrsRef attrs) {
  if (context.autocast) [[unlikely]]
    if (const AutocastInputs cast(op, inputs); cast.changed())
      return run_single(op, cast.get(), attrs);
  if (context.graph) [[unlikely]]
    return trace_op(op, inputs, attrs).front();
  Dispatch dispatch(op, inputs, attrs);
  TANDEM_ASSERT(dispatch.num_outputs() == 1);
  Tensor output;
  dispatch.run({&output, 1});
  return output;
}

std::vector<Tensor> run_op_in_place(const OpDef& op, Tensor first,
                                    std::initializer_list<const Tensor*> rest, AttrsRef attrs) {
  const InlineList<const Tensor*> inputs = joined(first, rest);
  if (context.autocast || context.graph) [[unlikely]]
    return run_op(op, {inputs.begin(), inputs.end()}, attrs);
  Dispatch dispatch(op, {inputs.begin(), inputs.end()}, attrs);
  std::vector<Tensor> outputs(static_cast<std::size_t>(dispatch.num_outputs()));
  dispatch.run(outputs, true);
  return outputs;
}

Tensor run_in_place(const OpDef& op, Tensor first, std::initializer_list<const Tensor*> rest,
                    AttrsRef attrs) {
  const InlineList<const Tensor*> inputs = joined(first, rest);
  if (context.autocast || context.graph) [[unlikely]]
    return run_single(op, {inputs.begin(), inputs.end()}, attrs);
  Dispatch dispatch(op, {inputs.begin(), inputs.end()}, attrs);
  TANDEM_ASSERT(dispatch.num_outputs() == 1);
  Tensor output;
  dispatch.run({&output, 1}, true);
  return output;
}

void run_update(const OpDef& op, std::span<const Tensor* const> inputs, AttrsRef attrs) {
  if (context.graph) [[unlikely]] {
    trace_op(op, inputs, attrs);
    return;
  }
  Dispatch dispatch(op, inputs, attrs);
  TANDEM_ASSERT(dispatch.num_outputs() == 0);
  dispatch.run({});
}

}  // namespace tandem
