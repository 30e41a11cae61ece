#include "core/parallel.h"
#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"
#include "graph/passes/tiles.h"

namespace tandem {
namespace {

struct GroupAttrs {
  std::vector<MemberAttrs> members;
  int inputs_each = 0;

  GroupAttrs() = default;
  // Each run changes the members' attributes: a copy has its own.
  GroupAttrs(const GroupAttrs& other) : inputs_each(other.inputs_each) {
    for (const MemberAttrs& member : other.members) members.push_back(member.own());
  }
  GroupAttrs& operator=(const GroupAttrs&) = delete;

  template <class F>
  void fields(F&&) const {}
};

// Elements [begin, end) of the members' elements, one after the other.
void update_range(const GroupAttrs& attrs, const KernelContext& whole, std::int64_t begin,
                  std::int64_t end) {
  std::int64_t before = 0;  // elements of the members before this one
  for (std::size_t k = 0; k < attrs.members.size(); ++k) {
    const int first = static_cast<int>(k) * attrs.inputs_each;
    const std::int64_t size = whole.inputs[first].size();
    const std::int64_t from = std::max<std::int64_t>(begin - before, 0);
    const std::int64_t to = std::min(end - before, size);
    before += size;
    if (from >= to) continue;
    KernelContext context;
    context.workspace = whole.workspace;
    for (int i = 0; i < attrs.inputs_each; ++i) {
      const TensorView& operand = whole.inputs[first + i];
      context.inputs.push_back(size == 1 ? operand : part_of(operand, from, to - from));
    }
    run_member(attrs.members[k], context);
  }
}

void group_kernel(KernelContext& c) {
  const auto& attrs = c.attrs<GroupAttrs>();
  std::int64_t total = 0;
  for (std::size_t k = 0; k < attrs.members.size(); ++k)
    total += c.inputs[static_cast<int>(k) * attrs.inputs_each].size();
  parallel_for(total, 8 * kTileElements, [&](std::int64_t begin, std::int64_t end) {
    // The ranges are the threads': a kernel within one uses no team of its own.
    ThreadBudget alone(1);
    update_range(attrs, c, begin, end);
  });
}

const OpDef kGroupedUpdate = {.name = "_GroupedUpdate",
                              .attrs = &attrs_type<GroupAttrs>,
                              .cpu_kernel = group_kernel,
                              .traits = kStateful,
                              .mutated_inputs = kAllTensors};

bool suits(const Operation& operation) {
  return operation.op->mutated_inputs != 0 && operation.has(kElementwise) &&
         operation.outputs.empty() && operation.op->cpu_kernel &&
         operation.device->backend() != DeviceBackend::kCuda;
}

// REQUIRES: `first` and those after it update by the same operation on one device.
void group(std::vector<std::unique_ptr<Operation>>& operations, std::size_t first,
           std::size_t count) {
  auto attrs = std::make_shared<GroupAttrs>();
  attrs->inputs_each = static_cast<int>(operations[first]->inputs.size());
  std::vector<std::shared_ptr<const Renewal>> renewals;
  std::vector<Value*> inputs;
  for (std::size_t i = first; i < first + count; ++i) {
    const Operation& operation = *operations[i];
    attrs->members.push_back({operation.op, operation.attrs});
    renewals.push_back(operation.renewal);
    inputs.insert(inputs.end(), operation.inputs.begin(), operation.inputs.end());
  }
  Operation& grouped = *operations[first];
  grouped.op = &kGroupedUpdate;
  grouped.attrs = std::move(attrs);
  grouped.inputs = std::move(inputs);
  grouped.renewal = std::make_shared<const Renewal>([renewals](void* group_attrs) {
    auto& members = static_cast<GroupAttrs*>(group_attrs)->members;
    // GroupAttrs are copied before they are renewed, so that these attributes are this run's own.
    for (std::size_t i = 0; i < members.size(); ++i)
      if (renewals[i]) (*renewals[i])(const_cast<void*>(members[i].attrs.get()));
  });
}

}  // namespace

void group_updates(Block& block) {
  std::unordered_set<const Operation*> gone;
  auto& operations = block.operations;
  for (std::size_t i = 0; i < operations.size();) {
    std::size_t count = 1;
    if (suits(*operations[i]))
      while (i + count < operations.size() && suits(*operations[i + count]) &&
             operations[i + count]->op == operations[i]->op &&
             operations[i + count]->device == operations[i]->device)
        ++count;
    if (count > 1) {
      group(operations, i, count);
      for (std::size_t k = 1; k < count; ++k) gone.insert(operations[i + k].get());
    }
    i += count;
  }
  erase_operations(block, gone);
}

}  // namespace tandem
