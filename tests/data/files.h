// Data files made by tests.
#pragma once

#include <gtest/gtest.h>
#include <zlib.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace tandem::testing {

using Bytes = std::vector<std::uint8_t>;

// An IDX file: magic number, sizes, elements.
inline Bytes idx_file(std::uint8_t type, const std::vector<std::uint32_t>& sizes,
                      const Bytes& elements) {
  Bytes file = {0, 0, type, static_cast<std::uint8_t>(sizes.size())};
  for (const std::uint32_t size : sizes)
    for (int shift = 24; shift >= 0; shift -= 8)
      file.push_back(static_cast<std::uint8_t>(size >> shift));
  file.insert(file.end(), elements.begin(), elements.end());
  return file;
}

inline Bytes gzip(const Bytes& plain) {
  z_stream stream{};
  deflateInit2(&stream, 9, Z_DEFLATED, 15 + 16, 9, Z_DEFAULT_STRATEGY);
  Bytes packed(deflateBound(&stream, plain.size()) + 64);
  stream.next_in = const_cast<Bytef*>(plain.data());
  stream.avail_in = static_cast<uInt>(plain.size());
  stream.next_out = packed.data();
  stream.avail_out = static_cast<uInt>(packed.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

// Bytes 0, 1, 2, ... each below `limit`.
inline Bytes ramp(std::size_t count, std::size_t limit = 256) {
  Bytes bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::uint8_t>(i % limit);
  return bytes;
}

// A temporary directory, removed by the destructor.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "tandem-data-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::string path() const { return path_.string(); }
  std::string operator/(const std::string& name) const { return (path_ / name).string(); }
  std::string write(const std::string& name, const Bytes& bytes) const {
    std::ofstream(path_ / name, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()),
               static_cast<std::streamsize>(bytes.size()));
    return *this / name;
  }

 private:
  std::filesystem::path path_;
};

}  // namespace tandem::testing
