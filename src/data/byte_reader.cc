#include "data/byte_reader.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "core/status.h"

namespace tandem::data {
namespace {

bool has_gzip_magic(std::span<const std::byte> bytes) {
  return bytes.size() >= 2 && bytes[0] == std::byte{0x1f} && bytes[1] == std::byte{0x8b};
}

}  // namespace

ByteReader::ByteReader(std::string_view op, std::string_view name, std::span<const std::byte> bytes)
    : op_(op), name_(name), rest_(bytes), gzip_(has_gzip_magic(bytes)) {
  constexpr int kGzipWindow = 15 + 16;  // the largest window, in a gzip wrapper
  if (gzip_ && inflateInit2(&zlib_, kGzipWindow) != Z_OK)
    fail<ResourceExhaustedError>("[{}] {}: zlib could not be initialised", op_, name_);
}

ByteReader::~ByteReader() {
  if (gzip_) inflateEnd(&zlib_);
}

std::size_t ByteReader::max_bytes_left() const {
  constexpr std::size_t kMaxExpansion = 1032;  // of deflate
  return gzip_ ? (rest_.size() + 64) * kMaxExpansion : rest_.size();
}

std::size_t ByteReader::read(void* to, std::size_t count) {
  auto* target = static_cast<std::byte*>(to);
  if (!gzip_) {
    const std::size_t got = std::min(count, rest_.size());
    if (got > 0) std::memcpy(target, rest_.data(), got);
    rest_ = rest_.subspan(got);
    return got;
  }
  std::size_t got = 0;
  while (got < count && !ended_) got += inflate_some(target + got, count - got);
  return got;
}

std::size_t ByteReader::inflate_some(std::byte* to, std::size_t count) {
  const auto chunk = [](std::size_t size) {
    return static_cast<uInt>(std::min<std::size_t>(size, 1u << 30));
  };
  const uInt wanted = chunk(count), given = chunk(rest_.size());
  zlib_.next_out = reinterpret_cast<Bytef*>(to);
  zlib_.avail_out = wanted;
  zlib_.next_in =
      reinterpret_cast<Bytef*>(const_cast<std::byte*>(rest_.data()));  // zlib does not write it
  zlib_.avail_in = given;
  const int status = inflate(&zlib_, Z_NO_FLUSH);
  rest_ = rest_.subspan(given - zlib_.avail_in);
  if (status == Z_STREAM_END) {
    // A gzip file may hold several streams; any other bytes after a stream are corruption.
    if (rest_.empty())
      ended_ = true;
    else if (!has_gzip_magic(rest_) || inflateReset(&zlib_) != Z_OK)
      fail<DataLossError>("[{}] {}: expected the end of the gzip data, got {} more bytes", op_,
                          name_, rest_.size());
  } else if (status == Z_MEM_ERROR) {
    fail<ResourceExhaustedError>("[{}] {}: out of memory while decompressing gzip data", op_,
                                 name_);
  } else if (status != Z_OK && status != Z_BUF_ERROR) {
    fail<DataLossError>("[{}] {}: the gzip data is corrupt ({})", op_, name_,
                        zlib_.msg ? zlib_.msg : zError(status));
  } else if (rest_.empty() && zlib_.avail_out == wanted) {
    fail<DataLossError>("[{}] {}: the gzip data is truncated", op_, name_);
  }
  return wanted - zlib_.avail_out;
}

}  // namespace tandem::data
