#include "graph/passes/element_chain.h"

#include <algorithm>
#include <optional>

#include "core/parallel.h"
#include "core/status.h"
#include "core/thread_object.h"
#include "graph/passes/rewrite.h"
#include "op/context.h"

namespace tandem {
namespace {

constexpr std::int64_t kBufferBytes = kTileElements * 8;

void fused_kernel(KernelContext& c) {
  const ElementChain& chain = c.attrs<FusedElementwiseAttrs>().chain;
  const std::span<const TensorView> inputs(c.inputs.begin(), c.inputs.end());
  const std::int64_t size = c.outputs[0].size();
  // Each thread runs whole tiles, so that the first error does not depend on the number of threads.
  const std::int64_t tiles = (size + kTileElements - 1) / kTileElements;
  parallel_for(tiles, 8, [&](std::int64_t begin, std::int64_t end) {
    const std::int64_t first = begin * kTileElements;
    chain.run(inputs, c.outputs[0], c.workspace, first,
              std::min(size, end * kTileElements) - first);
  });
}

std::optional<CudaChains>& registered() {
  static auto& chains = *new std::optional<CudaChains>;
  return chains;
}

}  // namespace

void register_cuda_chains(const CudaChains& chains) { registered() = chains; }
const CudaChains* cuda_chains() { return registered() ? &*registered() : nullptr; }

const OpDef kFusedElementwise = {.name = "_FusedElementwise",
                                 .attrs = &attrs_type<FusedElementwiseAttrs>,
                                 .cpu_kernel = fused_kernel,
                                 .traits = kElementwise | kInPlace};

bool is_chain(const BlockOperation& operation) {
  if (!operation.has(kElementwise) || !is_pure(operation) || operation.attr_update ||
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

ElementChain ElementChain::of(const BlockOperation& operation) {
  TANDEM_ASSERT(is_chain(operation));
  if (operation.op == &kFusedElementwise)
    return static_cast<const FusedElementwiseAttrs*>(operation.attrs.get())->chain;
  ElementChain chain;
  std::vector<Value*> externals;
  chain.append(operation, {}, externals);
  // An input that is used twice is one external input.
  std::vector<int> places;
  for (const Value* external : externals)
    places.push_back(
        static_cast<int>(std::find(operation.inputs.begin(), operation.inputs.end(), external) -
                         operation.inputs.begin()));
  chain.renumber(places);
  return chain;
}

void ElementChain::append(const BlockOperation& operation,
                          const std::vector<const BlockOperation*>& members,
                          std::vector<Value*>& externals) {
  Member member;
  member.op = operation.op;
  member.attrs = operation.attrs;
  member.dtype = operation.outputs[0]->spec.dtype;
  for (Value* input : operation.inputs) {
    const auto maker =
        std::find_if(members.begin(), members.end(),
                     [&](const BlockOperation* earlier) { return earlier->outputs[0] == input; });
    if (maker != members.end()) {
      member.inputs.push_back({false, static_cast<int>(maker - members.begin())});
      continue;
    }
    auto at = std::find(externals.begin(), externals.end(), input);
    if (at == externals.end()) at = externals.insert(externals.end(), input);
    member.inputs.push_back({true, static_cast<int>(at - externals.begin())});
  }
  // Its inputs are still in its buffers while it runs.
  member.buffer = vacant_buffer();
  buffers_ = std::max(buffers_, member.buffer + 1);
  members_.push_back(std::move(member));
}

// The first buffer whose result no later member reads.
int ElementChain::vacant_buffer() const {
  std::vector<bool> waits(members_.size(), true);
  for (const Member& member : members_)
    for (const Operand& operand : member.inputs)
      if (!operand.external) waits[static_cast<std::size_t>(operand.index)] = false;
  std::vector<bool> taken(members_.size() + 1);
  for (std::size_t i = 0; i < members_.size(); ++i)
    if (waits[i]) taken[static_cast<std::size_t>(members_[i].buffer)] = true;
  return static_cast<int>(std::find(taken.begin(), taken.end(), false) - taken.begin());
}

void ElementChain::renumber(std::span<const int> place_of) {
  for (Member& member : members_)
    for (Operand& operand : member.inputs)
      if (operand.external) operand.index = place_of[static_cast<std::size_t>(operand.index)];
}

void ElementChain::run_tile(std::span<const TensorView> externals, const TensorView& result,
                            DeviceImpl* workspace, std::int64_t begin, std::int64_t count,
                            std::byte* buffers) const {
  const Scoped part(context.first_element, begin);
  const std::size_t last = members_.size() - 1;
  const auto buffer = [&](std::size_t member) {
    return TensorView{buffers + members_[member].buffer * kBufferBytes, members_[member].dtype,
                      Shape({count})};
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
                       DeviceImpl* workspace, std::int64_t begin, std::int64_t count) const {
  struct Buffers {
    std::vector<std::byte> bytes;
  };
  std::vector<std::byte>& buffers = thread_object<Buffers>().bytes;
  buffers.resize(std::max(buffers.size(), static_cast<std::size_t>(buffers_ * kBufferBytes)));
  for (std::int64_t at = begin; at < begin + count; at += kTileElements)
    run_tile(externals, result, workspace, at, std::min(kTileElements, begin + count - at),
             buffers.data());
}

}  // namespace tandem
