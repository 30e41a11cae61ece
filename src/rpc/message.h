// The content of a remote procedure call and of its reply: raw bytes.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace tandem::rpc {

// Received attachments start at a multiple of this.
inline constexpr std::size_t kAlignment = 64;

// `owner` keeps the bytes in memory, and they must not change until the call has ended. A received
// attachment is one block of memory of its own, aligned to kAlignment; `owner` alone owns it.
struct Attachment {
  std::shared_ptr<const void> owner;
  std::span<const std::byte> bytes;
};

struct Message {
  std::string header;
  std::vector<Attachment> attachments = {};
};

}  // namespace tandem::rpc
