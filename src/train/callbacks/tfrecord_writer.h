// Writes TFRecord files: each record with its length and the checksums of both.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string_view>

namespace tandem {

// Not thread-safe.
class TFRecordWriter {
 public:
  // Throws the errors of core/file_error.h, as write() does.
  explicit TFRecordWriter(std::filesystem::path path);
  // Writes and flushes a record.
  void write(std::string_view record);

 private:
  [[noreturn]] void fail_to_write() const;

  std::filesystem::path path_;
  std::ofstream out_;
};

}  // namespace tandem
