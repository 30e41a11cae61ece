// Reads bytes in memory sequentially. Gzip data is recognised by its magic number and decompressed.
#pragma once

#include <zlib.h>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace tandem::data {

class ByteReader {
 public:
  // `op` and `name`, the file's name, are for messages.
  ByteReader(std::string_view op, std::string_view name, std::span<const std::byte> bytes);
  ~ByteReader();
  ByteReader(const ByteReader&) = delete;
  ByteReader& operator=(const ByteReader&) = delete;

  // Reads up to `count` bytes; fewer only at the end. Throws DataLossError if gzip data is corrupt
  // or truncated.
  std::size_t read(void* to, std::size_t count);
  // An upper bound on the bytes that are left. Readers check it before they allocate what a header
  // asks for, because a corrupt header may ask for far too much.
  std::size_t max_bytes_left() const;

 private:
  std::size_t inflate_some(std::byte* to, std::size_t count);

  std::string_view op_, name_;
  std::span<const std::byte> rest_;
  bool gzip_ = false;
  bool ended_ = false;  // the gzip data has ended
  z_stream zlib_{};
};

}  // namespace tandem::data
