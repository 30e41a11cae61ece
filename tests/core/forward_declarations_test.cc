// tandem/fwd.h declares what the other headers define.
#include "tandem/fwd.h"

namespace tandem {
// A header of a program that only passes tensors around.
class Simulation {
 public:
  void set_state(const Tensor& state);
  Tensor state() const;
  Model* model;
  data::Dataset* samples;
  DType dtype;
};
}  // namespace tandem

#include <gtest/gtest.h>

#include "tandem/tandem.h"

namespace tandem {
namespace {

TEST(ForwardDeclarations, AgreeWithTheDefinitions) {
  const Simulation simulation{nullptr, nullptr, float32};
  EXPECT_EQ(simulation.dtype, DType::kFloat32);
}

}  // namespace
}  // namespace tandem
