// Collectives between processes in programs: their tensors are packed in buckets.
#include <gtest/gtest.h>

#include "comm/process/process_communicator.h"
#include "comm/shm/shm_backend.h"
#include "graph/collective.h"
#include "graph/graph_support.h"
#include "graph/memory_plan.h"
#include "graph/passes/grouped_update.h"
#include "graph/passes/passes.h"
#include "graph/schedule_collectives.h"
#include "support/forked_store.h"
#include "sync/external_group.h"
#include "sync/traced_sync.h"

namespace tandem::packed_collective_test {
namespace {

using Tensors = std::vector<Tensor>;

// A process group with one rank.
TracedRank one_rank(DeviceImpl& device) {
  auto communicator = make_process_communicator(
      make_shm_backend({.store = std::make_shared<ForkedStore>(), .rank = 0, .size = 1}), device,
      {});
  return {{std::make_shared<ExternalGroup>(std::move(communicator)), 0}, device};
}

TEST(PackedCollective, IsComputedAndReadInItsBucket) {
  const Tensor x = random::normal({16, 16});
  DeviceImpl& device = impl_of(x).device();
  const TracedRank rank = one_rank(device);
  const auto body = [&](const Tensors& in, bool reduces) -> Tensors {
    Tensors parts = {matmul(in[0], in[0]), reduce_sum(in[0], {.axis = Dims{0}})};
    if (reduces) parts = rank.all_reduce(parts, ReduceOp::kSum);
    // The second result is fetched.
    return {reduce_sum(tanh(parts[0])), parts[1]};
  };
  const auto traced = [&](const Tensors& in) { return body(in, true); };
  Block block = block_of({x}, traced);
  schedule_collectives(block);
  const MemoryPlan plan = plan_memory(block);
  const auto found =
      std::find_if(block.operations.begin(), block.operations.end(),
                   [](const auto& operation) { return operation->op == &kCollectiveReduce; });
  ASSERT_NE(found, block.operations.end());
  const Value& product = (*found)->inputs[0]->root();
  EXPECT_EQ(&product, &(*found)->outputs[0]->root());  // read from the bucket
  ASSERT_EQ(plan.packed.count(&product), 1u);
  EXPECT_EQ(plan.packed.at(&product).collective, found->get());
  EXPECT_EQ(plan.allocations.count(&product), 0u);
  EXPECT_EQ(plan.packed.count(&(*found)->outputs[1]->root()), 0u);

  Program program(block_of({x}, traced));
  const Tensors expected = body({x}, false);
  for (int run = 0; run < 3; ++run) {
    const Tensors results = program.run(std::span(&x, 1));
    for (std::size_t i = 0; i < 2; ++i)
      EXPECT_EQ(results[i].to_vector<float>(), expected[i].to_vector<float>());
  }
}

TEST(PackedCollective, AveragesByExamplesAreComputedInTheBucket) {
  const Tensor x = random::normal({16, 16});
  const Variable w(zeros({16, 16}));
  DeviceImpl& device = impl_of(x).device();
  const TracedRank rank = one_rank(device);
  const auto traced = [&](const Tensors& in) -> Tensors {
    TracedSync sync({w}, device, rank.average(constant(std::vector{3.0f})));
    sync.ready(0, matmul(in[0], in[0]));
    return {reduce_sum(tanh(sync.finish()->front()))};
  };
  Block block = block_of({x}, traced);
  schedule_collectives(block);
  const MemoryPlan plan = plan_memory(block);
  const auto found =
      std::find_if(block.operations.begin(), block.operations.end(),
                   [](const auto& operation) { return operation->op == &kCollectiveReduce; });
  ASSERT_NE(found, block.operations.end());
  EXPECT_EQ(plan.packed.count(&(*found)->inputs[0]->root()), 1u);
  Program program(block_of({x}, traced));
  EXPECT_EQ(program.run(std::span(&x, 1)).front().to_vector<float>(),
            reduce_sum(tanh(matmul(x, x))).to_vector<float>());
}

// The updates of the first gradients run while the last gradients are reduced, even if the program
// has them in another order.
TEST(PackedCollective, UpdatesWaitOnlyForTheirOwnGradients) {
  const std::vector<Variable> variables{Variable(zeros({8, 8})), Variable(zeros({8})),
                                        Variable(zeros({16, 8})), Variable(zeros({16}))};
  optimizers::Optimizer sgd = optimizers::SGD({.learning_rate = 0.5});
  const Tensor x = ones({8, 8});
  DeviceImpl& device = impl_of(x).device();
  const TracedRank rank = one_rank(device);
  const auto traced = [&](const Tensors& in) -> Tensors {
    const Tensor late = add(in[0], 1.0);
    const Tensors first =
        rank.all_reduce(Tensors{concat({late, late}, 0), full({16}, 4.0)}, ReduceOp::kSum);
    const Tensors last =
        rank.all_reduce(Tensors{matmul(late, late), full({8}, 6.0)}, ReduceOp::kSum);
    sgd.apply_gradients({last[0], last[1], first[0], first[1]}, variables);
    return {};
  };
  Block block = block_of({x}, traced);
  optimize(block);
  schedule_collectives(block);
  std::vector<std::string> names;
  for (const auto& operation : block.operations)
    if (operation->member || operation->op == &kCollectiveWait || operation->op == &kGroupedUpdate)
      names.emplace_back(operation->op->name);
  EXPECT_EQ(names,
            (std::vector<std::string>{"CollectiveReduce", "CollectiveReduce", "_CollectiveWait",
                                      "_GroupedUpdate", "_CollectiveWait", "_GroupedUpdate"}));
  const auto updates = [&](const auto& operation) { return operation->op == &kGroupedUpdate; };
  const auto earlier = std::find_if(block.operations.begin(), block.operations.end(), updates);
  EXPECT_EQ((*earlier)->inputs[0]->spec.shape, (Shape{16, 8}));

  Program program(block_of({x}, traced));
  program.run(std::span(&x, 1));
  EXPECT_EQ(variables[0].value().to_vector<float>(), std::vector<float>(64, -16.0f));
  EXPECT_EQ(variables[1].value().to_vector<float>(), std::vector<float>(8, -3.0f));
  EXPECT_EQ(variables[2].value().to_vector<float>(), std::vector<float>(128, -1.0f));
  EXPECT_EQ(variables[3].value().to_vector<float>(), std::vector<float>(16, -2.0f));
}

}  // namespace
}  // namespace tandem::packed_collective_test
