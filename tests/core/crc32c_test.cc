#include "core/crc32c.h"

#include <gtest/gtest.h>

#include <string>

namespace tandem {
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

INSTANTIATE_TEST_SUITE_P(All, Crc32c, ::testing::Values(add_crc32c, detail::add_crc32c_by_tables));

}  // namespace
}  // namespace tandem
