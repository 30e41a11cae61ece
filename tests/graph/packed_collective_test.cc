// Collectives between processes in programs: what they combine lies in buckets.
#include <gtest/gtest.h>

#include "comm/process/process_communicator.h"
#include "comm/shm/shm_backend.h"
#include "distribute/traced_replica.h"
#include "graph/collective.h"
#include "graph/graph_support.h"
#include "graph/memory_plan.h"
#include "support/forked_store.h"

namespace tandem {
namespace {

using Tensors = std::vector<Tensor>;

// A process group of this process alone.
class OneRank final : public CollectiveGroup {
 public:
  explicit OneRank(Device& device)
      : communicator_(make_process_communicator(
            make_shm_backend({.store = std::make_shared<ForkedStore>(), .rank = 0, .size = 1}),
            device, {})) {}
  int size() const override { return 1; }
  Communicator& communicator(int) override { return *communicator_; }
  bool within_program() const override { return false; }

 private:
  std::unique_ptr<Communicator> communicator_;
};

TEST(PackedCollective, IsComputedAndReadInItsBucket) {
  const Tensor x = random::normal({16, 16});
  Device& device = impl_of(x).device();
  const distribute::TracedRank rank({std::make_shared<OneRank>(device), 0}, device, nullptr);
  const auto body = [&](const Tensors& in, bool reduces) -> Tensors {
    Tensors parts = {matmul(in[0], in[0]), reduce_sum(in[0], {.axis = Dims{0}})};
    if (reduces) parts = rank.all_reduce(parts, ReduceOp::kSum);
    // The second result leaves the program.
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
  EXPECT_EQ(&product, &(*found)->outputs[0]->root());  // read where it was written
  ASSERT_EQ(plan.packed.count(&product), 1u);
  EXPECT_EQ(plan.packed.at(&product).collective, found->get());
  EXPECT_EQ(plan.places.count(&product), 0u);
  EXPECT_EQ(plan.packed.count(&(*found)->outputs[1]->root()), 0u);

  Program program(block_of({x}, traced));
  const Tensors expected = body({x}, false);
  for (int run = 0; run < 3; ++run) {
    const Tensors results = program.run(std::span(&x, 1));
    for (std::size_t i = 0; i < 2; ++i)
      EXPECT_EQ(results[i].to_vector<float>(), expected[i].to_vector<float>());
  }
}

TEST(PackedCollective, WhatIsAveragedByExamplesIsComputedThereToo) {
  const Tensor x = random::normal({16, 16});
  const Variable w(zeros({16, 16}));
  Device& device = impl_of(x).device();
  distribute::TracedRank rank({std::make_shared<OneRank>(device), 0}, device, nullptr);
  const auto traced = [&](const Tensors& in) -> Tensors {
    const auto reduction = rank.start_reduction({w}, false, constant(std::vector{3.0f}));
    reduction->ready(0, matmul(in[0], in[0]));
    return {reduce_sum(tanh(reduction->finish().front()))};
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

}  // namespace
}  // namespace tandem
