#include "rpc/frame.h"

#include <gtest/gtest.h>

#include "rpc/task.h"

namespace tandem::rpc::frame_test {
namespace {

using namespace testing;

std::vector<std::byte> bytes_of(const Message& message, std::uint32_t outcome = 0) {
  const std::string prefix = frame_prefix(message, outcome);
  std::vector<std::byte> bytes(prefix.size());
  std::memcpy(bytes.data(), prefix.data(), prefix.size());
  for (const Attachment& each : message.attachments)
    bytes.insert(bytes.end(), each.bytes.begin(), each.bytes.end());
  return bytes;
}

Frame parse(std::span<const std::byte> bytes, std::size_t piece) {
  std::vector<std::span<const std::byte>> pieces;
  for (; bytes.size() > piece; bytes = bytes.subspan(piece)) pieces.push_back(bytes.first(piece));
  pieces.push_back(bytes);
  return parse_frame(pieces);
}

const Message kMessage = {"header", {attachment_of(random_bytes(300, 1)), {}}};

TEST(Frame, IsReadWhateverThePieces) {
  const auto bytes = bytes_of(kMessage, 9);
  EXPECT_EQ(bytes.size(), frame_bytes(kMessage));
  for (std::size_t piece = 1; piece <= bytes.size(); ++piece) {
    const Frame frame = parse(bytes, piece);
    EXPECT_EQ(frame.outcome, 9u);
    EXPECT_EQ(frame.message.header, "header");
    ASSERT_EQ(frame.message.attachments.size(), 2u);
    EXPECT_TRUE(same_bytes(frame.message.attachments[0].bytes, random_bytes(300, 1)));
    EXPECT_TRUE(frame.message.attachments[1].bytes.empty());
  }
}

TEST(Frame, ThatIsCutShortIsAnError) {
  const auto bytes = bytes_of(kMessage);
  for (std::size_t count = 0; count < bytes.size(); ++count)
    expect_parts(error_of<DataLossError>([&] { parse(std::span(bytes).first(count), 7); }),
                 {"[rpc] a received message is damaged: "});
}

TEST(Frame, WithOtherSizesIsAnError) {
  auto bytes = bytes_of(kMessage);
  const auto with = [&](std::size_t at, int value) {
    auto changed = bytes;
    for (std::size_t i = at; i < at + 4; ++i) changed[i] = static_cast<std::byte>(value);
    return error_of<DataLossError>([&] { parse(changed, 64); });
  };
  expect_parts(with(0, 0), {"it does not start as a message of Tandem"});
  expect_parts(with(8, 0xff), {"the header has fewer bytes than announced"});
  expect_parts(with(12, 0xff), {"it ends within the sizes"});
  expect_parts(with(16, 0xff), {"the attachments have fewer bytes than announced"});
  bytes.push_back(std::byte{0});
  expect_parts(error_of<DataLossError>([&] { parse(bytes, 64); }), {"bytes follow its end"});
}

}  // namespace
}  // namespace tandem::rpc::frame_test
