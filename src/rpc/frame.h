// The bytes of a message on the wire, all numbers in little-endian order:
//
//   kMagic u32, outcome u32, size of the header u32, number of attachments u32,
//   the size of each attachment u64, the header, the attachments
//
// The outcome is 0 in a request and in a reply. It is the code of an error (rpc/error_code.h) if
// the handler threw one; the header is then its message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "rpc/message.h"

namespace tandem::rpc {

struct Frame {
  std::uint32_t outcome = 0;
  Message message;
};

// All bytes of the frame before those of the attachments.
std::string frame_prefix(const Message& message, std::uint32_t outcome);
// The size of the whole frame.
std::size_t frame_bytes(const Message& message);

// A frame whose bytes arrived in `pieces`. Copies every byte once. Throws DataLossError for
// anything that is not one complete frame; it never allocates more than the size of its input.
Frame parse_frame(std::span<const std::span<const std::byte>> pieces);

}  // namespace tandem::rpc
