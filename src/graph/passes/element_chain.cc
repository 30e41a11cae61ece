#include "graph/passes/element_chain.h"

#include <algorithm>
#include <optional>

#include "core/parallel.h"
#include "core/status.h"
#include "graph/passes/rewrite.h"

namespace tandem {
namespace {

constexpr std::int64_t kBufferBytes = kTileElements * 8;

void fused_kernel(KernelContext& c) {
  const ElementChain& chain = c.attrs<FusedElementwiseAttrs>().chain;
  const std::span<const TensorView> inputs(c.inputs.begin(), c.inputs.end());
  parallel_for(c.outputs[0].size(), 8 * kTileElements, [&](std::int64_t begin, std::int64_t end) {
    chain.run(inputs, c.outputs[0], c.workspace, begin, end - begin);
  });
}

std::optional<CudaChains>& registered() {
  static std::optional<CudaChains> chains;
  return chains;
}

}  // namespace

void register_cuda_chains(const CudaChains& chains) { registered() = chains; }
const CudaChains* cuda_chains() { return registered() ? &*registered() : nullptr; }

const OpDef kFusedElementwise = {.name = "_FusedElementwise",
                                 .attrs = &attrs_type<FusedElementwiseAttrs>,
                                 .cpu_kernel = fused_kernel,
                                 .traits = kElementwise | kInPlace};

bool is_chain(const Operation& operation) {
  if (!operation.has(kElementwise) || !is_pure(operation) || operation.renewal ||
      operation.outputs.size() != 1 || !operation.op->cpu_kernel || operation.inputs.empty())
    return false;
  if (operation.device->backend() == DeviceBackend::kCuda && operation.op != &kFusedElementwise &&
      !(cuda_chains() && cuda_chains()->takes(operation)))
    return false;
  const std::int64_t size = operation.outputs[0]->spec.shape.num_elements();
  return std::all_of(operation.inputs.begin(), operation.inputs.end(), [&](const Value* input) {
    const std::int64_t elements = input->spec.shape.num_elements();
    return elements == size || elements == 1;
  });
}

ElementChain ElementChain::of(const Operation& operation) {
  TANDEM_ASSERT(is_chain(operation));
  if (operation.op == &kFusedElementwise)
    return static_cast<const FusedElementwiseAttrs*>(operation.attrs.get())->chain;
  ElementChain chain;
  std::vector<Value*> externals;
  chain.append(operation, {}, externals);
  // An input that is given twice is one external.
  std::vector<int> places;
  for (const Value* external : externals)
    places.push_back(
        static_cast<int>(std::find(operation.inputs.begin(), operation.inputs.end(), external) -
                         operation.inputs.begin()));
  chain.renumber(places);
  return chain;
}

void ElementChain::append(const Operation& operation, const std::vector<const Operation*>& members,
                          std::vector<Value*>& externals) {
  Member member;
  member.op = operation.op;
  member.attrs = operation.attrs;
  member.dtype = operation.outputs[0]->spec.dtype;
  for (Value* input : operation.inputs) {
    const auto maker = std::find_if(members.begin(), members.end(), [&](const Operation* earlier) {
      return earlier->outputs[0] == input;
    });
    if (maker != members.end()) {
      member.inputs.push_back({false, static_cast<int>(maker - members.begin())});
      continue;
    }
    auto at = std::find(externals.begin(), externals.end(), input);
    if (at == externals.end()) at = externals.insert(externals.end(), input);
    member.inputs.push_back({true, static_cast<int>(at - externals.begin())});
  }
  members_.push_back(std::move(member));
}

void ElementChain::renumber(std::span<const int> place_of) {
  for (Member& member : members_)
    for (Operand& operand : member.inputs)
      if (operand.external) operand.index = place_of[static_cast<std::size_t>(operand.index)];
}

void ElementChain::run_tile(std::span<const TensorView> externals, const TensorView& result,
                            Device* workspace, std::int64_t begin, std::int64_t count,
                            std::byte* buffers) const {
  const std::size_t last = members_.size() - 1;
  const auto buffer = [&](std::size_t member) {
    return TensorView{buffers + static_cast<std::int64_t>(member) * kBufferBytes,
                      members_[member].dtype, Shape({count})};
  };
  for (std::size_t i = 0; i <= last; ++i) {
    KernelContext context;
    context.workspace = workspace;
    for (const Operand& operand : members_[i].inputs) {
      const auto index = static_cast<std::size_t>(operand.index);
      context.inputs.push_back(operand.external ? part_of(externals[index], begin, count)
                                                : buffer(index));
    }
    context.outputs.push_back(i == last ? part_of(result, begin, count) : buffer(i));
    run_member(members_[i], context);
  }
}

void ElementChain::run(std::span<const TensorView> externals, const TensorView& result,
                       Device* workspace, std::int64_t begin, std::int64_t count) const {
  thread_local std::vector<std::byte> buffers;
  buffers.resize(std::max(buffers.size(), members_.size() * kBufferBytes));
  for (std::int64_t at = begin; at < begin + count; at += kTileElements)
    run_tile(externals, result, workspace, at, std::min(kTileElements, begin + count - at),
             buffers.data());
}

}  // namespace tandem
