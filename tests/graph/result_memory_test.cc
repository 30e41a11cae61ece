// Results of programs in memory that the caller provides.
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>

#include "graph/graph_support.h"
#include "graph/program.h"
#include "support/tensors.h"

namespace tandem::result_memory_test {
namespace {

using testing::values_of;
using Values = std::vector<double>;

// Allocates memory, and keeps a reference to it.
struct OutsideMemory {
  std::vector<std::shared_ptr<double>> blocks;
  std::shared_ptr<void> allocate(std::size_t bytes) {
    return blocks.emplace_back(static_cast<double*>(std::aligned_alloc(64, (bytes + 63) / 64 * 64)),
                               std::free);
  }
};

TEST(ResultMemory, HasTheResultsOfARun) {
  const DeviceScope cpu("/cpu:0");
  const Tensor x = constant({1.0, 2.0, 3.0}, {.dtype = float64});
  OutsideMemory outside;
  const auto body = [](const std::vector<Tensor>& in) -> std::vector<Tensor> {
    const Tensor twice = in[0] * 2.0;
    return {in[0] + 1.0, twice, reshape(twice, {3, 1}), in[0]};
  };
  Program program(block_of({x}, body),
                  {.name = "results", .result_memory = [&](std::size_t fetch, std::size_t bytes) {
                     return fetch == 0 ? nullptr : outside.allocate(bytes);
                   }});
  for (std::size_t run = 0; run < 3; ++run) {
    const std::vector<Tensor> results = program.run(std::span(&x, 1));
    EXPECT_EQ(values_of(results[0]), (Values{2, 3, 4}));
    EXPECT_EQ(values_of(results[1]), (Values{2, 4, 6}));
    EXPECT_EQ(values_of(results[2]), (Values{2, 4, 6}));
    ASSERT_EQ(outside.blocks.size(), run + 1) << "expected one per value and run";
    const void* const memory = outside.blocks.back().get();
    EXPECT_EQ(impl_of(results[1]).data(), memory);
    EXPECT_EQ(impl_of(results[2]).data(), memory);
  }
  for (const auto& block : outside.blocks) EXPECT_EQ(block.use_count(), 1);
}

}  // namespace
}  // namespace tandem::result_memory_test
