#include "comm/process/contiguous.h"

#include <cstring>

namespace tandem {

Contiguous::Contiguous(std::span<const Buffer> buffers) : buffers_(buffers) {
  std::size_t bytes = 0;
  bool apart = false;
  for (const Buffer& buffer : buffers) {
    if (buffer.count == 0) continue;
    auto* const begin = static_cast<std::byte*>(buffer.data);
    if (!data_) data_ = begin;
    apart = apart || begin != data_ + bytes;
    bytes += buffer.bytes();
    count_ += buffer.count;
  }
  if (!apart) return;
  copy_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
  data_ = copy_.get();
}

void Contiguous::gather() const {
  if (!copy_) return;
  std::byte* at = data_;
  for (const Buffer& buffer : buffers_) {
    if (buffer.count == 0) continue;
    std::memcpy(at, buffer.data, buffer.bytes());
    at += buffer.bytes();
  }
}

void Contiguous::scatter() const {
  if (!copy_) return;
  const std::byte* at = data_;
  for (const Buffer& buffer : buffers_) {
    if (buffer.count == 0) continue;
    std::memcpy(buffer.data, at, buffer.bytes());
    at += buffer.bytes();
  }
}

}  // namespace tandem
