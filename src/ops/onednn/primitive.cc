#include "ops/onednn/primitive.h"

namespace tandem::onednn {
namespace {

dnnl::stream& thread_stream() {
  thread_local dnnl::stream stream(cpu());
  return stream;
}

}  // namespace

// Never destroyed, because threads that end late may still hold primitives.
const dnnl::engine& cpu() {
  static const auto* engine = new dnnl::engine(dnnl::engine::kind::cpu, 0);
  return *engine;
}

Executable::Executable(const dnnl::primitive& primitive, const memory::desc& scratchpad,
                       std::initializer_list<Argument> arguments)
    : primitive_(primitive), scratchpad_bytes_(scratchpad.get_size()) {
  for (const Argument& argument : arguments) add(argument);
  if (scratchpad_bytes_ > 0) add({DNNL_ARG_SCRATCHPAD, scratchpad});
}

void Executable::run(KernelContext& context, std::initializer_list<const void*> addresses) {
  check(run_in(context.scratch(scratchpad_bytes_), addresses));
}

dnnl_status_t Executable::run_in(void* scratchpad, std::initializer_list<const void*> addresses) {
  TANDEM_ASSERT(addresses.size() + (scratchpad_bytes_ > 0) == memories_.size());
  std::size_t i = 0;
  const auto set = [&](void* address) {
    return dnnl_memory_set_data_handle(memories_[i++].get(), address);
  };
  // oneDNN's API takes mutable pointers, but does not write to inputs.
  for (const void* address : addresses)
    if (const dnnl_status_t status = set(const_cast<void*>(address)); status != dnnl_success)
      return status;
  if (scratchpad_bytes_ > 0)
    if (const dnnl_status_t status = set(scratchpad); status != dnnl_success) return status;
  return dnnl_primitive_execute(primitive_.get(), thread_stream().get(),
                                static_cast<int>(arguments_.size()), arguments_.data());
}

void Executable::add(const Argument& argument) {
  memories_.push_back(memory(argument.desc, cpu(), DNNL_MEMORY_NONE));
  arguments_.push_back({argument.id, memories_.back().get()});
}

void check(dnnl_status_t status) {
  if (status != dnnl_success) [[unlikely]]
    fail<InternalError>("[oneDNN] a primitive failed with status {}", static_cast<int>(status));
}

std::unique_ptr<Executable> make_reorder(const memory::desc& from, const memory::desc& to) {
  const dnnl::reorder::primitive_desc desc(cpu(), from, cpu(), to, attributes());
  return std::make_unique<Executable>(
      dnnl::reorder(desc), desc.scratchpad_desc(),
      std::initializer_list<Executable::Argument>{{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, to}});
}

bool computes(DType dtype) {
  static const bool native_bfloat16 = __builtin_cpu_supports("avx512bf16");
  return dtype == float32 || (dtype == bfloat16 && native_bfloat16);
}

}  // namespace tandem::onednn
