// Files of TFRecords: each record framed by its length and the checksums of both.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string_view>

namespace tandem {

// The CRC-32C (Castagnoli) of `bytes`.
std::uint32_t crc32c(std::string_view bytes);

// Not thread-safe.
class TFRecordWriter {
 public:
  // Throws NotFoundError when the file cannot be made.
  explicit TFRecordWriter(std::filesystem::path path);
  // Throws ResourceExhaustedError when the file system is full. Written through at once.
  void write(std::string_view record);

 private:
  std::filesystem::path path_;
  std::ofstream out_;
};

}  // namespace tandem
