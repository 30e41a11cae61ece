#include "train/callbacks/tfrecord_writer.h"

#include <array>
#include <cerrno>

#include "core/file_error.h"
#include "core/status.h"

namespace tandem {
namespace {

constexpr std::array<std::uint32_t, 256> kTable = [] {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc & 1u ? (crc >> 1) ^ 0x82f63b78u : crc >> 1;
    table[byte] = crc;
  }
  return table;
}();

// TFRecord masks checksums, since data may itself contain checksums.
std::uint32_t masked(std::uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xa282ead8u; }

template <class T>
std::string_view bytes_of(const T& value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  std::uint32_t crc = ~0u;
  for (const char byte : bytes)
    crc = kTable[(crc ^ static_cast<unsigned char>(byte)) & 0xffu] ^ (crc >> 8);
  return ~crc;
}

TFRecordWriter::TFRecordWriter(std::filesystem::path path)
    : path_(std::move(path)), out_(path_, std::ios::binary | std::ios::trunc) {
  if (!out_) fail_to_write();
}

void TFRecordWriter::write(std::string_view record) {
  const auto length = static_cast<std::uint64_t>(record.size());
  const std::uint32_t length_crc = masked(crc32c(bytes_of(length))),
                      record_crc = masked(crc32c(record));
  errno = 0;
  out_ << bytes_of(length) << bytes_of(length_crc) << record << bytes_of(record_crc) << std::flush;
  if (!out_) fail_to_write();
}

void TFRecordWriter::fail_to_write() const {
  throw_file_error(fmt::format("[TFRecord] cannot write '{}'", path_.string()), errno);
}

}  // namespace tandem
