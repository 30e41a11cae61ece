#include "core/widen.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

namespace tandem::widen_test {
namespace {

template <class T>
class Widen : public ::testing::Test {};
using Types = ::testing::Types<Half, BFloat16>;
TYPED_TEST_SUITE(Widen, Types);

TYPED_TEST(Widen, EveryNumberEqualsItsConversionAlone) {
  std::vector<TypeParam> all(1 << 16);
  for (std::size_t i = 0; i < all.size(); ++i) all[i].bits = static_cast<std::uint16_t>(i);
  std::vector<float> wide(all.size());
  widen(all.data(), wide.data(), static_cast<std::int64_t>(all.size()));
  for (std::size_t i = 0; i < all.size(); ++i) {
    const float expected = all[i];
    if (std::isnan(expected))
      EXPECT_TRUE(std::isnan(wide[i])) << i;
    else
      EXPECT_EQ(std::bit_cast<std::uint32_t>(wide[i]), std::bit_cast<std::uint32_t>(expected)) << i;
  }
}

TYPED_TEST(Widen, NarrowRoundsAsTheConstructor) {
  std::vector<float> wide;
  for (std::uint64_t bits = 0; bits < (1ull << 32); bits += 4093)
    wide.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
  // Halfway between two numbers
  for (std::uint32_t bits = 0; bits < (1u << 16); ++bits) {
    wide.push_back(std::bit_cast<float>(bits << 16 | 0x8000u));
    wide.push_back(std::bit_cast<float>(bits << 13 | 0x1000u));
  }
  std::vector<TypeParam> narrowed(wide.size());
  narrow(wide.data(), narrowed.data(), static_cast<std::int64_t>(wide.size()));
  for (std::size_t i = 0; i < wide.size(); ++i) {
    if (std::isnan(wide[i]))
      ASSERT_TRUE(std::isnan(static_cast<float>(narrowed[i]))) << wide[i];
    else
      ASSERT_EQ(narrowed[i].bits, TypeParam(wide[i]).bits) << wide[i];
  }
}

TYPED_TEST(Widen, ConvertsAnyCountAndNoMore) {
  for (std::int64_t count = 0; count <= 40; ++count) {
    std::vector<TypeParam> from(64, TypeParam(1.5f)), back(64, TypeParam(-1.0f));
    std::vector<float> wide(64, -1.0f);
    widen(from.data(), wide.data(), count);
    narrow(wide.data(), back.data(), count);
    for (std::int64_t i = 0; i < 64; ++i) {
      EXPECT_EQ(wide[static_cast<std::size_t>(i)], i < count ? 1.5f : -1.0f);
      EXPECT_EQ(static_cast<float>(back[static_cast<std::size_t>(i)]), i < count ? 1.5f : -1.0f);
    }
  }
}

}  // namespace
}  // namespace tandem::widen_test
