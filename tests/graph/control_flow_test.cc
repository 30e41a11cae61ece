// Passes on blocks with control flow, around it and in its bodies.
#include <gtest/gtest.h>

#include <algorithm>

#include "graph/graph_support.h"
#include "graph/memory_plan.h"
#include "graph/passes/passes.h"

namespace tandem::control_flow_test {
namespace {

using Tensors = std::vector<Tensor>;

const BlockOperation& control_of(const Block& block) {
  for (const auto& operation : block.operations)
    if (operation->control) return *operation;
  throw NotFoundError("no control flow");
}

std::size_t count_of(const std::vector<std::string>& names, const std::string& name) {
  return static_cast<std::size_t>(std::count(names.begin(), names.end(), name));
}

TEST(ControlFlowBlock, CapturedTensorsBecomeInputs) {
  const Variable v(ones({3}));
  const Block block = block_of({ones({3}), constant(true)}, [&](const Tensors& x) {
    const Tensor y = x[0] * 2.0;
    return Tensors{cond(
        x[1], [&] { return y + v; }, [&] { return y * y + x[0]; })};
  });
  const BlockOperation& operation = control_of(block);
  ASSERT_EQ(operation.inputs.size(), 4u);  // the predicate, y, v and x
  EXPECT_EQ(operation.outputs.size(), 1u);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_FALSE(operation.mutates(i));
  EXPECT_EQ(count_of(names_of(block), "AddV2"), 0u);
  ASSERT_EQ(operation.control->bodies.size(), 2u);
  EXPECT_EQ(names_of(operation.control->bodies[0].block).size(), 1u);
  EXPECT_EQ(names_of(operation.control->bodies[1].block).size(), 2u);
}

TEST(ControlFlowBlock, ReadsBeforeAndAfterAWriteAreNotMerged) {
  Variable v(ones({3}));
  const auto reads = [&](bool writes) {
    Block block = block_of({constant(true)}, [&](const Tensors& x) {
      const Tensor before = reduce_sum(v.value());
      cond(
          x[0],
          [&] {
            if (writes) v.assign_add(ones({3}));
          },
          [&] {
            if (!writes) static_cast<void>(v.value());
          });
      return Tensors{before, reduce_sum(v.value())};
    });
    optimize(block);
    return count_of(names_of(block), "Sum");
  };
  EXPECT_EQ(reads(true), 2u);
  EXPECT_EQ(reads(false), 1u);
}

TEST(ControlFlowBlock, AnUnusedLoopIsRemoved) {
  Variable v(zeros({}));
  const auto loops = [&](bool writes) {
    const Block block = block_of({ones({})}, [&](const Tensors& x) {
      while_loop([](const Tensors& w) { return less(w[0], 3.0); },
                 [&](const Tensors& w) {
                   if (writes) v.assign(w[0]);
                   return Tensors{w[0] + x[0]};
                 },
                 {x[0]});
      return Tensors{x[0] * 2.0};
    });
    return count_of(names_of(block), "While");
  };
  EXPECT_EQ(loops(false), 0u);
  EXPECT_EQ(loops(true), 1u);
}

TEST(ControlFlowBlock, TheMemoryOfItsOperandsIsNotShared) {
  Block block = block_of({ones({64})}, [](const Tensors& x) {
    const Tensor y = exp(x[0]);
    const Tensors last = while_loop([](const Tensors& w) { return less(reduce_sum(w[0]), 1e3); },
                                    [&](const Tensors& w) { return Tensors{w[0] + y}; }, {tanh(y)});
    return Tensors{reduce_sum(last[0])};
  });
  const MemoryPlan plan = plan_memory(block);
  const BlockOperation& loop = control_of(block);
  ASSERT_EQ(loop.outputs.size(), 2u);  // the result, and room for the next iteration
  std::vector<MemoryPlan::Allocation> allocations;
  for (const auto* values : {&loop.inputs, &loop.outputs})
    for (const Value* value : *values) allocations.push_back(plan.allocations.at(&value->root()));
  for (std::size_t i = 0; i < allocations.size(); ++i)
    for (std::size_t k = 0; k < i; ++k)
      EXPECT_TRUE(allocations[i].offset + allocations[i].bytes <= allocations[k].offset ||
                  allocations[k].offset + allocations[k].bytes <= allocations[i].offset);
}

}  // namespace
}  // namespace tandem::control_flow_test
