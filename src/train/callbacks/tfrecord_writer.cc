#include "train/callbacks/tfrecord_writer.h"

#include <cerrno>

#include "core/bytes.h"
#include "core/crc32c.h"
#include "core/file_error.h"

namespace tandem {
namespace {

// TFRecord masks checksums, since data may itself contain checksums.
std::uint32_t masked(std::uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xa282ead8u; }

}  // namespace

TFRecordWriter::TFRecordWriter(std::filesystem::path path)
    : path_(std::move(path)), out_(path_, std::ios::binary | std::ios::trunc) {
  if (!out_) fail_to_write();
}

void TFRecordWriter::write(std::string_view record) {
  const auto length = static_cast<std::uint64_t>(record.size());
  const std::uint32_t length_crc = masked(crc32c(plain_bytes(length))),
                      record_crc = masked(crc32c(record));
  errno = 0;
  out_ << plain_bytes(length) << plain_bytes(length_crc) << record << plain_bytes(record_crc)
       << std::flush;
  if (!out_) fail_to_write();
}

void TFRecordWriter::fail_to_write() const {
  throw_file_error(fmt::format("[TFRecord] cannot write '{}'", path_.string()), errno);
}

}  // namespace tandem
