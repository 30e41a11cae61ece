#include "comm/process/group_name.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>
#include <string>
#include <vector>

namespace tandem::group_name_test {
namespace {

// Group names are parts of store keys, whose length is limited.
TEST(GroupName, HasOneLengthHoweverManyRanksAndHoweverDeep) {
  std::vector<int> ranks(10'000);
  std::iota(ranks.begin(), ranks.end(), 0);
  std::set<std::string> names;
  std::string name = "world 0";
  for (int depth = 0; depth < 20; ++depth) {
    name = subgroup_name(name, ranks, 0);
    EXPECT_EQ(name.size(), 32u);
    EXPECT_TRUE(names.insert(name).second);
  }
}

TEST(GroupName, DiffersForEveryGroup) {
  const std::vector<int> some = {1, 2}, other = {2, 1}, more = {1, 2, 3};
  const std::set<std::string> names = {
      subgroup_name("world 0", some, 0),  subgroup_name("world 0", some, 1),
      subgroup_name("world 0", other, 0), subgroup_name("world 0", more, 0),
      subgroup_name("world 1", some, 0),  subgroup_name("world 0", {}, 0)};
  EXPECT_EQ(names.size(), 6u);
  EXPECT_EQ(subgroup_name("world 0", some, 1), subgroup_name("world 0", some, 1));
}

}  // namespace
}  // namespace tandem::group_name_test
