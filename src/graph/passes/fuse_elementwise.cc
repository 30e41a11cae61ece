#include <numeric>

#include "graph/passes/element_chain.h"
#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"

namespace tandem {
namespace {

// Operations that will be one, in order; the last one's output is the result.
struct Group {
  std::vector<Operation*> members;
  std::size_t position = 0;  // of the last member in the block
};

struct Joined {
  ElementChain chain;
  std::vector<Value*> externals;

  explicit Joined(const std::vector<Operation*>& operations) {
    std::vector<const Operation*> members;
    for (const Operation* operation : operations) {
      chain.append(*operation, members, externals);
      members.push_back(operation);
    }
  }
};

class Fusion {
 public:
  explicit Fusion(Block& block) : block_(block), uses_(count_uses(block)) {}

  void run() {
    for (std::size_t i = 0; i < block_.operations.size(); ++i) visit(*block_.operations[i], i);
    std::unordered_set<const Operation*> gone;
    for (const auto& group : groups_) {
      if (!group || group->members.size() < 2) continue;
      fuse(*group);
      for (std::size_t i = 0; i + 1 < group->members.size(); ++i) gone.insert(group->members[i]);
    }
    erase_operations(block_, gone);
  }

 private:
  void visit(Operation& operation, std::size_t position) {
    note_writes(operation, position);
    if (operation.op == &kFusedElementwise || !is_chain(operation)) return;
    auto group = std::make_unique<Group>();
    for (Value* input : operation.inputs) {
      const auto at = group_of_.find(input->producer);
      if (input->kind != Value::Kind::kComputed || at == group_of_.end()) continue;
      std::unique_ptr<Group>& joined = groups_[at->second];
      if (!joined || !may_join(*joined, *input, operation)) continue;
      std::vector<Operation*> members = group->members;
      members.insert(members.end(), joined->members.begin(), joined->members.end());
      if (!fits(members, operation)) continue;
      group->members = std::move(members);
      joined.reset();
    }
    // Groups that were joined are each in order, and what one hands to another it hands through
    // this operation alone.
    group->members.push_back(&operation);
    group->position = position;
    group_of_[&operation] = groups_.size();
    groups_.push_back(std::move(group));
  }

  // The group's result is used by `operation` alone, on its device, for each of its elements, and
  // nothing that the group reads changes before the operation's turn.
  bool may_join(const Group& group, const Value& result, const Operation& operation) {
    if (uses_[&result] != 1 || result.producer->device != operation.device ||
        result.spec.shape.num_elements() != operation.outputs[0]->spec.shape.num_elements())
      return false;
    for (const Operation* member : group.members)
      for (const Value* input : member->inputs)
        if (const auto at = written_.find(&input->root());
            at != written_.end() && at->second > group.position)
          return false;
    return true;
  }
  // Whether the device has a kernel for these and `operation` behind them.
  static bool fits(std::vector<Operation*> members, Operation& operation) {
    if (operation.device->backend() != DeviceBackend::kCuda) return true;
    members.push_back(&operation);
    const Joined joined(members);
    return cuda_chains()->fits(joined.chain, joined.externals.size(), false);
  }
  void note_writes(const Operation& operation, std::size_t position) {
    for (std::size_t i = 0; i < operation.inputs.size(); ++i)
      if (operation.mutates(i)) written_[&operation.inputs[i]->root()] = position;
  }

  void fuse(const Group& group) {
    auto [chain, externals] = Joined(group.members);
    Operation& fused = *group.members.back();
    put_shareable_first(chain, externals, *fused.outputs[0]);
    fused.op = &kFusedElementwise;
    fused.attrs =
        std::make_shared<const FusedElementwiseAttrs>(FusedElementwiseAttrs{std::move(chain)});
    fused.inputs = std::move(externals);
  }

  // Memory is shared with the first input only: one that is as large as the output.
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
  std::vector<std::unique_ptr<Group>> groups_;
  std::unordered_map<const Operation*, std::size_t> group_of_;
  std::unordered_map<const Value*, std::size_t> written_;  // when each memory was last written
};

}  // namespace

void fuse_elementwise(Block& block) { Fusion(block).run(); }

}  // namespace tandem
