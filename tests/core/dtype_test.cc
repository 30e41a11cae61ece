#include "tandem/dtype.h"

#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "support/errors.h"
#include "tandem/errors.h"

namespace tandem::dtype_test {
namespace {

TEST(DType, NamesAndSizes) {
  const std::pair<DType, std::pair<const char*, std::size_t>> table[] = {
      {float32, {"float32", 4}},   {float64, {"float64", 8}}, {float16, {"float16", 2}},
      {bfloat16, {"bfloat16", 2}}, {int32, {"int32", 4}},     {int64, {"int64", 8}},
      {uint8, {"uint8", 1}},       {bool_, {"bool", 1}}};
  for (const auto& [dtype, expected] : table) {
    EXPECT_EQ(name_of(dtype), expected.first);
    EXPECT_EQ(size_of(dtype), expected.second);
    EXPECT_EQ(dtype_from_name(expected.first), dtype);
    std::ostringstream out;
    out << dtype;
    EXPECT_EQ(out.str(), expected.first);
  }
}

TEST(DType, UnknownNameListsTheTypesThereAre) {
  EXPECT_EQ(testing::error_of<InvalidArgumentError>([&] { dtype_from_name("float8"); }),
            "[DType] expected one of float32, float64, float16, bfloat16, int32, int64, uint8, "
            "bool, got 'float8'");
}

}  // namespace
}  // namespace tandem::dtype_test
