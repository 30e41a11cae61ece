#include "core/crc32c.h"

#include <gtest/gtest.h>

#include <string>

namespace tandem::crc32c_test {
namespace {

using Add = std::uint32_t (*)(std::uint32_t before, const void* data, std::size_t bytes);

class Crc32c : public ::testing::TestWithParam<Add> {
 protected:
  static std::uint32_t checksum(const std::string& bytes) {
    return GetParam()(0, bytes.data(), bytes.size());
  }
};

TEST_P(Crc32c, AgreesWithPublishedValues) {
  EXPECT_EQ(checksum(""), 0u);
  EXPECT_EQ(checksum("123456789"), 0xe3069283u);            // the check value of CRC-32C
  EXPECT_EQ(checksum(std::string(32, '\0')), 0x8a9136aau);  // RFC 3720, B.4
  EXPECT_EQ(checksum(std::string(32, '\xff')), 0x62a8ab43u);
}

TEST_P(Crc32c, ContinuesAtAnyByte) {
  std::string bytes;
  for (int i = 0; i < 100; ++i) bytes += static_cast<char>(i * 37);
  for (std::size_t size = 0; size <= bytes.size(); ++size) {
    const std::uint32_t before = GetParam()(0, bytes.data(), size);
    EXPECT_EQ(GetParam()(before, bytes.data() + size, bytes.size() - size), crc32c(bytes)) << size;
  }
}

// Long inputs are computed in several streams.
TEST_P(Crc32c, LongInputsContinueAtAnyByte) {
  std::string bytes;
  for (int i = 0; i < 50'000; ++i) bytes += static_cast<char>(i * 37 + i / 251);
  std::uint32_t expected = 0;
  for (std::size_t at = 0; at < bytes.size(); at += 100)
    expected = GetParam()(expected, bytes.data() + at, 100);
  for (const std::size_t size : {0, 1, 4095, 12287, 12288, 12289, 24583, 36864, 49999}) {
    const std::uint32_t before = GetParam()(7, bytes.data(), size);
    EXPECT_EQ(before, detail::add_crc32c_by_tables(7, bytes.data(), size)) << size;
    const std::uint32_t begin = GetParam()(0, bytes.data(), size);
    EXPECT_EQ(GetParam()(begin, bytes.data() + size, bytes.size() - size), expected) << size;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Crc32c, ::testing::Values(add_crc32c, detail::add_crc32c_by_tables));

}  // namespace
}  // namespace tandem::crc32c_test
