// Bytes in memory, read in order; gzip is told by its magic number and unpacked on the way.
#pragma once

#include <zlib.h>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace tandem::data {

class ByteReader {
 public:
  // `op` and `name` (a file's) are for messages.
  ByteReader(std::string_view op, std::string_view name, std::span<const std::byte> bytes);
  ~ByteReader();
  ByteReader(const ByteReader&) = delete;
  ByteReader& operator=(const ByteReader&) = delete;

  // Reads up to `count` bytes; fewer only at the end. Throws DataLossError where gzip data is
  // corrupt or cut short.
  std::size_t read(void* to, std::size_t count);
  // At least as many bytes as can be left, so that a false header cannot ask for more memory.
  std::size_t most_left() const;

 private:
  std::size_t inflate_some(std::byte* to, std::size_t count);

  std::string_view op_, name_;
  std::span<const std::byte> rest_;
  bool gzip_ = false;
  bool ended_ = false;  // of the gzip data
  z_stream zlib_{};
};

}  // namespace tandem::data
