// The records of a TFRecord file.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "data/input_file.h"

namespace tandem::data {

// The bytes before and after a record in a file: its length, a checksum of the length, and a
// checksum of the record.
struct RecordFrame {
  explicit RecordFrame(std::string_view record);
  std::string_view before() const { return {bytes, 12}; }
  std::string_view after() const { return {bytes + 12, 4}; }
  char bytes[16];
};

// Not thread-safe.
class RecordReader {
 public:
  RecordReader(const std::string& path, Compression compression, std::int64_t max_record)
      : file_("from_tfrecord", path, compression), max_record_(max_record) {}

  // Reads the next record. Returns false at the end.
  bool next(std::string& record);
  // Where the record that was read last begins, for messages.
  std::string place() const;

 private:
  InputFile file_;
  std::int64_t max_record_;
  std::uint64_t at_ = 0, record_at_ = 0;  // in the file, without compression
};

}  // namespace tandem::data
