#include "graph/program_cache.h"

#include <gtest/gtest.h>

#include <string>

#include "support/gpus.h"
#include "tandem/tandem.h"

namespace tandem::program_cache_test {
namespace {

TEST(ProgramCache, EvictsTheProgramThatWasUsedLongestAgo) {
  ProgramCache<int> cache;
  constexpr int kMost = ProgramCache<int>::kMaxPrograms;
  for (int i = 0; i < kMost; ++i) EXPECT_EQ(cache.put(std::to_string(i), i), std::nullopt);
  ASSERT_NE(cache.find("0"), nullptr);
  EXPECT_EQ(cache.put("new", -1), 1);  // 0 has been used since
  EXPECT_EQ(cache.find("1"), nullptr);
  EXPECT_EQ(*cache.find("0"), 0);
  EXPECT_EQ(*cache.find("new"), -1);
  EXPECT_EQ(cache.put("0", 5), std::nullopt);  // replaced: there is no other to evict
  EXPECT_EQ(*cache.find("0"), 5);
}

TEST(ProgramCache, KeepsAProgramInConstantUse) {
  ProgramCache<int> cache;
  cache.put("hot", 0);
  for (int i = 0; i < 1000; ++i) {
    cache.put(std::to_string(i), i);
    ASSERT_NE(cache.find("hot"), nullptr) << i;
  }
}

TEST(ProgramCache, ForgetsProgramsByAPredicate) {
  ProgramCache<int> cache;
  cache.put("one", 1);
  cache.put("two", 2);
  cache.erase_if([](int program) { return program == 2; });
  EXPECT_EQ(cache.find("two"), nullptr);
  EXPECT_TRUE(cache.any_of([](int program) { return program == 1; }));
  EXPECT_FALSE(cache.any_of([](int program) { return program == 2; }));
}

TEST(ProgramCache, KeysTellDtypesShapesAndDevicesApart) {
  testing::use_gpus(1);
  const auto key = [](const Tensor& tensor) {
    std::string bytes;
    append_to_key(bytes, tensor);
    return bytes;
  };
  const std::string base = key(zeros({2, 3}));
  EXPECT_EQ(key(ones({2, 3})), base);
  EXPECT_NE(key(zeros({3, 2})), base);
  EXPECT_NE(key(zeros({2, 3}, {.dtype = int32})), base);
  EXPECT_NE(key(zeros({2, 3}).cpu()), base);
}

}  // namespace
}  // namespace tandem::program_cache_test
