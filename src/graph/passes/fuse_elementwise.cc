#include <numeric>

#include "graph/passes/element_chain.h"
#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"

namespace tandem {
namespace {

// Operations to fuse, in order. The output of the last one is the result.
struct FusionGroup {
  std::vector<BlockOperation*> members;
  std::size_t position = 0;  // of the last member in the block
};

struct Joined {
  ElementChain chain;
  std::vector<Value*> externals;

  explicit Joined(const std::vector<BlockOperation*>& operations) {
    std::vector<const BlockOperation*> members;
    for (const BlockOperation* operation : operations) {
      chain.append(*operation, members, externals);
      members.push_back(operation);
    }
  }
};

class ElementwiseFusion {
 public:
  explicit ElementwiseFusion(Block& block) : block_(block), uses_(count_uses(block)) {}

  void run() {
    for (std::size_t i = 0; i < block_.operations.size(); ++i) visit(*block_.operations[i], i);
    std::unordered_set<const BlockOperation*> gone;
    for (const auto& group : groups_) {
      if (!group || group->members.size() < 2) continue;
      fuse(*group);
      for (std::size_t i = 0; i + 1 < group->members.size(); ++i) gone.insert(group->members[i]);
    }
    erase_operations(block_, gone);
  }

 private:
  void visit(BlockOperation& operation, std::size_t position) {
    note_writes(operation, position);
    if (operation.op == &kFusedElementwise || !is_chain(operation)) return;
    auto group = std::make_unique<FusionGroup>();
    for (Value* input : operation.inputs) {
      const auto at = group_of_.find(input->producer);
      if (input->kind != Value::Kind::kComputed || at == group_of_.end()) continue;
      std::unique_ptr<FusionGroup>& joined = groups_[at->second];
      if (!joined || !may_join(*joined, *input, operation)) continue;
      std::vector<BlockOperation*> members = group->members;
      members.insert(members.end(), joined->members.begin(), joined->members.end());
      if (!fits(members, operation)) continue;
      group->members = std::move(members);
      joined.reset();
    }
    // Each merged group is in order, and this operation is the only link between them.
    group->members.push_back(&operation);
    group->position = position;
    group_of_[&operation] = groups_.size();
    groups_.push_back(std::move(group));
  }

  // Whether `operation` is the only user of the group's result, on the same device and element by
  // element, and no input of the group is written before `operation`.
  bool may_join(const FusionGroup& group, const Value& result, const BlockOperation& operation) {
    if (uses_[&result] != 1 || result.producer->device != operation.device ||
        result.spec.shape.num_elements() != operation.outputs[0]->spec.shape.num_elements())
      return false;
    for (const BlockOperation* member : group.members)
      for (const Value* input : member->inputs)
        if (const auto at = written_.find(&input->root());
            at != written_.end() && at->second > group.position)
          return false;
    return true;
  }
  // Whether the device has a kernel for the group followed by `operation`.
  static bool fits(std::vector<BlockOperation*> members, BlockOperation& operation) {
    if (operation.device->backend() != DeviceBackend::kCuda) return true;
    members.push_back(&operation);
    const Joined joined(members);
    return cuda_chains()->fits(joined.chain, joined.externals.size(), false);
  }
  void note_writes(const BlockOperation& operation, std::size_t position) {
    for (std::size_t i = 0; i < operation.inputs.size(); ++i)
      if (operation.mutates(i)) written_[&operation.inputs[i]->root()] = position;
  }

  void fuse(const FusionGroup& group) {
    auto [chain, externals] = Joined(group.members);
    BlockOperation& fused = *group.members.back();
    put_shareable_first(chain, externals, *fused.outputs[0]);
    fused.op = &kFusedElementwise;
    fused.attrs =
        std::make_shared<const FusedElementwiseAttrs>(FusedElementwiseAttrs{std::move(chain)});
    fused.inputs = std::move(externals);
  }

  // Only the first input can share its memory, so it must be as large as the output.
  static void put_shareable_first(ElementChain& chain, std::vector<Value*>& externals,
                                  const Value& output) {
    const auto at = std::find_if(externals.begin(), externals.end(), [&](const Value* value) {
      return value->kind != Value::Kind::kConstant && value->spec.dtype == output.spec.dtype &&
             value->bytes() == output.bytes();
    });
    if (at == externals.end() || at == externals.begin()) return;
    std::vector<int> place_of(externals.size());
    std::iota(place_of.begin(), place_of.end(), 0);
    std::swap(place_of.front(), place_of[static_cast<std::size_t>(at - externals.begin())]);
    std::swap(externals.front(), *at);
    chain.renumber(place_of);
  }

  Block& block_;
  std::unordered_map<const Value*, int> uses_;
  std::vector<std::unique_ptr<FusionGroup>> groups_;
  std::unordered_map<const BlockOperation*, std::size_t> group_of_;
  std::unordered_map<const Value*, std::size_t> written_;  // when each memory was last written
};

}  // namespace

void fuse_elementwise(Block& block) { ElementwiseFusion(block).run(); }

}  // namespace tandem
