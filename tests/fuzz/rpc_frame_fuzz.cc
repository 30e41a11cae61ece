// Any bytes as a message of a remote procedure call: it is read, and written again as the same
// bytes, or refused.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "core/status.h"
#include "rpc/frame.h"

namespace {

using namespace tandem;
using Bytes = std::span<const std::byte>;

void check(Bytes input, std::size_t piece) {
  std::vector<Bytes> pieces;
  for (Bytes rest = input; !rest.empty();) {
    pieces.push_back(rest.first(std::min(piece, rest.size())));
    rest = rest.subspan(pieces.back().size());
  }
  try {
    const rpc::Frame frame = rpc::parse_frame(pieces);
    std::string again = rpc::frame_prefix(frame.message, frame.outcome);
    for (const auto& each : frame.message.attachments) {
      TANDEM_ASSERT(reinterpret_cast<std::uintptr_t>(each.bytes.data()) % rpc::kAlignment == 0);
      again.append(reinterpret_cast<const char*>(each.bytes.data()), each.bytes.size());
    }
    TANDEM_ASSERT(again.size() == input.size() && rpc::frame_bytes(frame.message) == input.size());
    TANDEM_ASSERT(std::memcmp(again.data(), input.data(), input.size()) == 0);
  } catch (const DataLossError&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
  const Bytes input(reinterpret_cast<const std::byte*>(bytes), size);
  check(input, 1 + size % 7);
  // As the rest of a frame whose first fields are good, with a few attachments.
  const std::size_t count = size == 0 ? 0 : bytes[0] % 4;
  rpc::Message message{.header = {}, .attachments = std::vector<rpc::Attachment>(count)};
  std::string frame = rpc::frame_prefix(message, size == 0 ? 0 : bytes[size - 1]);
  for (std::size_t i = 0; i < count && i + 1 < size; ++i)
    frame[16 + 8 * i] = static_cast<char>(bytes[i + 1] % 32);
  frame.append(reinterpret_cast<const char*>(bytes), size);
  check(std::as_bytes(std::span(frame)), 5);
  return 0;
}
