// The header of the safetensors format.
//
// The format (https://github.com/huggingface/safetensors): the header's size in 8 bytes, little
// endian; the header, JSON, {"name": {"dtype", "shape", "data_offsets": [begin, end]}, ...,
// "__metadata__": {string: string}}; then the tensors' bytes without holes.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tandem/dtype.h"
#include "tandem/shape.h"

namespace tandem {

inline constexpr const char* kMetadataEntry = "__metadata__";

// A tensor in a file.
struct SafetensorsEntry {
  std::string name;
  DType dtype = float32;
  std::string foreign;  // the dtype in the file, if Tandem does not have it
  Shape shape;
  std::uint64_t begin = 0, end = 0;  // of its bytes, counted from the end of the header
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;        // in the order of their bytes, without holes
  std::map<std::string, std::string> metadata;  // without the checksum
  std::optional<std::uint32_t> checksum;        // CRC-32 of header and data; none in others' files
  std::uint32_t header_crc = 0;  // of the header alone, with zeros as the checksum's digits
  std::uint64_t data_begin = 0;  // in the file
};

// Reads the next bytes of a file to `to`, and returns their number: less than `bytes` at its end.
using ReadBytes = std::function<std::size_t(void* to, std::size_t bytes)>;

// `size`: of the whole file. Throws DataLossError, or InvalidArgumentError for a rank that Tandem
// does not have. Never allocates more than `size` justifies, whatever the header
// claims.
SafetensorsHeader read_safetensors_header(const ReadBytes& read, std::uint64_t size,
                                          const std::string& what);

// Throws DataLossError if bool elements are neither 0 nor 1, which is undefined behaviour when they
// are read.
void require_booleans(DType dtype, const void* data, std::size_t bytes, const std::string& what,
                      const std::string& name);

// The CRC-32 of `so_far` followed by these bytes.
std::uint32_t crc_of(std::uint32_t so_far, const void* data, std::size_t bytes);

// The bytes of a header with zeros as the checksum's digits, and where these are.
struct HeaderText {
  std::string text;
  std::size_t checksum_at = 0;
};
// Throws InvalidArgumentError if a name or metadata is not UTF-8.
HeaderText make_safetensors_header(const std::vector<SafetensorsEntry>& entries,
                                   const std::map<std::string, std::string>& metadata,
                                   const std::string& what);

}  // namespace tandem
