// Compiles for TPUs that this machine does not have, by libtpu. tests/tools has the models of
// `tandem compile`.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "cases.h"
#include "support/expects.h"

namespace tandem::tpu_compilation_test {
namespace {

class TpuCompilationSlow : public ::testing::TestWithParam<const char*> {};

TEST_P(TpuCompilationSlow, CharacterTransformer) {
  const char* const libtpu = std::getenv("TPU_LIBRARY_PATH");
  TANDEM_REQUIRE(libtpu && *libtpu, "libtpu");
  setenv("TPU_SKIP_MDS_QUERY", "1", 1);  // it would ask the metadata server of a cloud machine
  config::load_pjrt_topology(libtpu, GetParam());
  const distribute::TPUStrategy strategy;
  Model model;
  {
    const auto scope = strategy.scope();
    model = bench::transformer(
        {.blocks = 4, .width = 256, .heads = 4, .length = 128, .vocabulary = 65});
    model.compile({.optimizer = optimizers::Adam(),
                   .loss = losses::SparseCategoricalCrossentropy({.from_logits = true})});
  }
  const DeviceScope host("/cpu:0");
  const Tensor characters = zeros({16, 128}, {.dtype = int32});
  const Explanation explanation = explain(model, {characters, characters});
  ASSERT_EQ(explanation.programs.size(), 1u) << "the step of all replicas is one program";
  const auto& program = explanation.programs[0];
  EXPECT_EQ(static_cast<int>(program.devices.size()), explanation.num_replicas);
  EXPECT_GT(program.arguments, 0);
  EXPECT_GT(program.flops, 0.0);
}

INSTANTIATE_TEST_SUITE_P(Targets, TpuCompilationSlow,
                         ::testing::Values("v4:2x2x1", "v5e:2x2", "v6e:2x2"));

}  // namespace
}  // namespace tandem::tpu_compilation_test
