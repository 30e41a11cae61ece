// Constant folding, common sub-expressions, dead operations.
#include <map>
#include <tuple>

#include "device/device_manager.h"
#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"
#include "op/find_kernel.h"

namespace tandem {
namespace {

// Larger constants would use memory for the lifetime of the program.
constexpr std::size_t kLargestFolded = std::size_t{64} << 10;

bool is_constant(const Value& value) { return value.root().kind == Value::Kind::kConstant; }

bool can_fold(const BlockOperation& operation) {
  if (!is_pure(operation) || !operation.op->cpu_kernel || operation.attr_update) return false;
  for (const Value* input : operation.inputs)
    if (!is_constant(*input)) return false;
  for (const Value* output : operation.outputs)
    if (output->bytes() > kLargestFolded) return false;
  return true;
}

// The kernel that runs would have on a native GPU, where results round as they do in its other
// kernels; null if the operation is folded by its CPU kernel, here.
KernelFn native_kernel(const BlockOperation& operation) {
  const auto is_there = [&](const Value* value) { return value->device == operation.device; };
  return operation.device->backend() == DeviceBackend::kCuda &&
                 std::all_of(operation.inputs.begin(), operation.inputs.end(), is_there) &&
                 std::all_of(operation.outputs.begin(), operation.outputs.end(), is_there)
             ? find_kernel(*operation.op, DeviceBackend::kCuda)
             : nullptr;
}

// Runs the operation. Throws what the kernel throws, as a run would.
void fold(BlockOperation& operation) {
  const KernelFn native = native_kernel(operation);
  DeviceImpl& device = native ? *operation.device : DeviceManager::get().host();
  KernelContext context;
  context.op = operation.op;
  context.attrs_data = operation.attrs.get();
  context.workspace = &device;
  if (native) context.native_stream = device.stream().native_handle();
  std::vector<Tensor> inputs, outputs;
  for (const Value* input : operation.inputs) {
    inputs.push_back(copy_to_device(
        make_view(input->root().constant, input->spec.shape, input->offset), device));
    const TensorImpl& impl = impl_of(inputs.back());
    context.inputs.push_back({impl.data(), impl.dtype, impl.shape});
  }
  for (const Value* output : operation.outputs) {
    outputs.push_back(make_tensor(device, output->spec.shape, output->spec.dtype));
    context.outputs.push_back(
        {impl_of(outputs.back()).data(), output->spec.dtype, output->spec.shape});
  }
  (native ? native : operation.op->cpu_kernel)(context);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    Value& output = *operation.outputs[i];
    output.kind = Value::Kind::kConstant;
    output.producer = nullptr;
    output.constant = copy_to_device(outputs[i], *output.device);
  }
}

}  // namespace

void fold_constants(Block& block) {
  std::unordered_set<const BlockOperation*> folded;
  for (const auto& operation : block.operations) {
    if (!can_fold(*operation)) continue;
    fold(*operation);
    folded.insert(operation.get());
  }
  for (const auto& operation : block.operations)
    if (operation->copied_from && folded.count(operation->copied_from) > 0)
      operation->copied_from = nullptr;
  erase_operations(block, folded);
}

void drop_dead_operations(Block& block) {
  std::unordered_map<const Value*, int> uses = count_uses(block);
  std::unordered_set<const BlockOperation*> dead;
  for (auto at = block.operations.rbegin(); at != block.operations.rend(); ++at) {
    const BlockOperation& operation = **at;
    const auto used = [&](const Value* output) { return uses[output] > 0; };
    if (operation.op->mutated_inputs != 0 || operation.has(kStateful) ||
        operation.outputs.empty() ||
        std::any_of(operation.outputs.begin(), operation.outputs.end(), used))
      continue;
    for (const Value* input : operation.inputs) --uses[&input->root()];
    dead.insert(&operation);
  }
  erase_operations(block, dead);
}

void merge_common_subexpressions(Block& block) {
  // Two reads of a variable differ if it was written in between.
  std::unordered_map<const Value*, int> writes;
  using Input = std::tuple<const Value*, std::int64_t, int>;  // root, offset, writes before
  using Key = std::tuple<const OpDef*, const DeviceImpl*, std::vector<Input>>;
  std::map<Key, std::vector<BlockOperation*>> seen;
  std::unordered_set<const BlockOperation*> merged;
  const auto same = [](const BlockOperation& a, const BlockOperation& b) {
    for (std::size_t i = 0; i < a.inputs.size(); ++i)
      if (!(a.inputs[i]->spec.shape == b.inputs[i]->spec.shape)) return false;
    return a.does_as(b);
  };
  for (const auto& operation : block.operations) {
    if (is_pure(*operation) && !operation->attr_update) {
      std::vector<Input> inputs;
      for (const Value* input : operation->inputs)
        inputs.emplace_back(&input->root(), input->offset, writes[&input->root()]);
      auto& candidates = seen[{operation->op, operation->device, std::move(inputs)}];
      const auto twin =
          std::find_if(candidates.begin(), candidates.end(),
                       [&](const BlockOperation* each) { return same(*each, *operation); });
      if (twin != candidates.end()) {
        for (std::size_t i = 0; i < operation->outputs.size(); ++i)
          replace_value(block, *operation->outputs[i], *(*twin)->outputs[i]);
        merged.insert(operation.get());
        continue;
      }
      candidates.push_back(operation.get());
    }
    for (std::size_t i = 0; i < operation->inputs.size(); ++i)
      if (operation->mutates(i)) ++writes[&operation->inputs[i]->root()];
  }
  erase_operations(block, merged);
}

}  // namespace tandem
