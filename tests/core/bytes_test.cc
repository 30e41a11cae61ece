#include "core/bytes.h"

#include <gtest/gtest.h>

#include "support/errors.h"

namespace tandem::bytes_test {
namespace {

enum class Color : std::uint8_t { kRed, kGreen };

std::string written() {
  std::string bytes;
  ByteWriter(bytes).add(Color::kGreen, std::int32_t{-2}, 0.5).add("text").add(std::uint16_t{258});
  return bytes;
}

TEST(Bytes, AreReadAsTheyWereWritten) {
  const std::string bytes = written();
  ByteReader in("it", bytes);
  EXPECT_EQ(in.choice(Color::kGreen), Color::kGreen);
  EXPECT_EQ(in.number<std::int32_t>(), -2);
  EXPECT_EQ(in.number<double>(), 0.5);
  EXPECT_EQ(in.text(), "text");
  EXPECT_EQ(in.left(), 2u);
  EXPECT_EQ(in.take(2), "\x02\x01");
  EXPECT_EQ(in.left(), 0u);
}

TEST(Bytes, AreTheSameInBothContainers) {
  std::vector<std::byte> bytes;
  ByteWriter(bytes).add(Color::kGreen, std::int32_t{-2}, 0.5).add("text").add(std::uint16_t{258});
  const std::string expected = written();
  EXPECT_EQ(ByteReader("it", bytes).take(bytes.size()), expected);
}

TEST(Bytes, ThatEndTooEarlyAreRefused) {
  const std::string bytes = written();
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    ByteReader in("[test] a message", std::string_view(bytes).substr(0, size));
    EXPECT_THROW(
        {
          in.choice(Color::kGreen);
          in.number<std::int32_t>();
          in.number<double>();
          in.text();
          in.number<std::uint16_t>();
        },
        DataLossError)
        << size;
  }
  const auto error = [](std::string_view bytes, auto read) {
    return testing::error_of<DataLossError>([&] {
      ByteReader in("[test] a message", bytes);
      read(in);
    });
  };
  EXPECT_EQ(error("abc", [](ByteReader& in) { in.number<std::int64_t>(); }),
            "[test] a message is damaged: expected 8 more bytes, got 3");
  EXPECT_EQ(error("\x02", [](ByteReader& in) { in.choice(Color::kGreen); }),
            "[test] a message is damaged: expected a value of at most 1, got 2");
}

}  // namespace
}  // namespace tandem::bytes_test
