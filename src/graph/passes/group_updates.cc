#include "core/parallel.h"
#include "graph/passes/grouped_update.h"
#include "graph/passes/passes.h"
#include "graph/passes/rewrite.h"

namespace tandem {
namespace {

// Updates elements [begin, end) of the concatenated elements of the variables.
void update_range(const GroupedUpdateAttrs& attrs, const KernelContext& whole, std::int64_t begin,
                  std::int64_t end) {
  std::int64_t before = 0;  // elements of the variables before this one
  for (int first = 0; first < whole.inputs.size(); first += attrs.inputs_each) {
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
    run_member(attrs.rule, context);
  }
}

void group_kernel(KernelContext& c) {
  const auto& attrs = c.attrs<GroupedUpdateAttrs>();
  std::int64_t total = 0;
  for (int first = 0; first < c.inputs.size(); first += attrs.inputs_each)
    total += c.inputs[first].size();
  parallel_for(total, 8 * kTileElements, [&](std::int64_t begin, std::int64_t end) {
    // Each range belongs to a thread, so kernels must not start threads of their own.
    ThreadBudget alone(1);
    update_range(attrs, c, begin, end);
  });
}

bool suits(const BlockOperation& operation) {
  return operation.op->mutated_inputs != 0 && operation.has(kElementwise) &&
         operation.outputs.empty() && operation.op->cpu_kernel;
}

// Whether both use the same rule in every run.
bool one_rule(const BlockOperation& a, const BlockOperation& b) {
  return a.does_as(b) && a.attr_update == b.attr_update && a.device == b.device &&
         std::equal(a.inputs.begin(), a.inputs.end(), b.inputs.begin(), b.inputs.end(),
                    [](const Value* x, const Value* y) { return x->spec.dtype == y->spec.dtype; });
}

// The memory that a group of updates uses. Updates with disjoint memory can be grouped.
struct Memory {
  std::unordered_set<const Value*> read, written;

  // Adds the memory of `operation`. Returns false if its order relative to the others matters.
  bool add(const BlockOperation& operation) {
    for (std::size_t i = 0; i < operation.inputs.size(); ++i) {
      const Value* root = &operation.inputs[i]->root();
      if (written.contains(root) || (operation.mutates(i) && read.contains(root))) return false;
    }
    for (std::size_t i = 0; i < operation.inputs.size(); ++i)
      (operation.mutates(i) ? written : read).insert(&operation.inputs[i]->root());
    return true;
  }
};

// For each operation, the number of the last collective among itself and its inputs; 0 if there is
// none.
std::unordered_map<const BlockOperation*, std::size_t> last_collectives(const Block& block) {
  std::unordered_map<const BlockOperation*, std::size_t> last;
  std::size_t collectives = 0;
  for (const auto& operation : block.operations) {
    std::size_t& number = last[operation.get()];
    if (operation->member) number = ++collectives;
    if (number > 0) continue;
    for (const Value* input : operation->inputs)
      if (const Value& root = input->root(); root.kind == Value::Kind::kComputed)
        number = std::max(number, last.at(root.producer));
  }
  return last;
}

// REQUIRES: `first` and the following operations use the same rule.
void group(std::vector<std::unique_ptr<BlockOperation>>& operations, std::size_t first,
           std::size_t count) {
  BlockOperation& grouped = *operations[first];
  auto attrs = std::make_shared<GroupedUpdateAttrs>();
  attrs->rule = {grouped.op, grouped.attrs};
  attrs->inputs_each = static_cast<int>(grouped.inputs.size());
  for (std::size_t i = first + 1; i < first + count; ++i)
    grouped.inputs.insert(grouped.inputs.end(), operations[i]->inputs.begin(),
                          operations[i]->inputs.end());
  grouped.op = &kGroupedUpdate;
  grouped.attrs = std::move(attrs);
  if (grouped.attr_update)
    grouped.attr_update = std::make_shared<const AttrUpdate>(
        [of_rule = grouped.attr_update](void* group_attrs, std::int64_t more) {
          // Attributes are copied before they are updated, so this run has its own.
          (*of_rule)(
              const_cast<void*>(static_cast<GroupedUpdateAttrs*>(group_attrs)->rule.attrs.get()),
              more);
        });
}

}  // namespace

const OpDef kGroupedUpdate = {.name = "_GroupedUpdate",
                              .attrs = &attrs_type<GroupedUpdateAttrs>,
                              .cpu_kernel = group_kernel,
                              .traits = kStateful,
                              .mutated_inputs = kAllTensors};

void group_updates(Block& block) {
  std::unordered_set<const BlockOperation*> gone;
  const auto collective = last_collectives(block);
  auto& operations = block.operations;
  for (std::size_t i = 0; i < operations.size();) {
    std::size_t count = 1;
    Memory memory;
    if (suits(*operations[i]) && memory.add(*operations[i]))
      while (i + count < operations.size() && suits(*operations[i + count]) &&
             one_rule(*operations[i], *operations[i + count]) &&
             collective.at(operations[i].get()) == collective.at(operations[i + count].get()) &&
             memory.add(*operations[i + count]))
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
