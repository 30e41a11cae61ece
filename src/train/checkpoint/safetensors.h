// Writes and reads safetensors files; tandem/checkpoint.h has the public API.
//
// The format (https://github.com/huggingface/safetensors): the header's size in 8 bytes, little
// endian; the header, JSON, {"name": {"dtype", "shape", "data_offsets": [begin, end]}, ...,
// "__metadata__": {string: string}}; then the tensors' bytes without holes.
#pragma once

#include <cstdint>
#include <functional>
#include <istream>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/atomic_file.h"
#include "core/json.h"
#include "core/status.h"
#include "tandem/checkpoint.h"
#include "tandem/dtype.h"
#include "tandem/shape.h"

namespace tandem {

// Throws the DataLossError of a file whose contents are not as they were written.
[[noreturn]] inline void fail_damaged(const std::string& what, const std::string& why) {
  fail<DataLossError>("[load] '{}' is damaged: {}", what, why);
}

// --- JSON of untrusted files: headers, and indices of checkpoints ---

// The largest header or index: the limit of the format's reference implementation.
inline constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;

// The dtype's name in safetensors files: "F32".
const char* format_name(DType dtype);

// All throw DataLossError for malformed JSON. `what`: the file; `part`: whose value it is, such as
// "its header" or "tensor 'x'".
//
// An object without duplicate keys.
Json parse_object(const std::string& text, const std::string& what, const std::string& part);
// None for a dtype that Tandem does not have.
std::optional<DType> dtype_named(const std::string& name);
// Throws InvalidArgumentError for a dtype that Tandem does not have.
[[noreturn]] void fail_dtype(const std::string& name, const std::string& what,
                             const std::string& part);
DType parse_dtype(const Json& value, const std::string& what, const std::string& part);
// Sizes whose product is countable. Throws InvalidArgumentError for more than kMaxRank axes.
Shape parse_shape(const Json& value, const std::string& what, const std::string& part);
// The value of `key` in an object.
const Json& member(const Json& object, const char* key, const std::string& what,
                   const std::string& part);
// A whole number of at least 0.
std::uint64_t parse_count(const Json& value, const std::string& what, const std::string& part);
std::string parse_string(const Json& value, const std::string& what, const std::string& part);
// Eight hexadecimal digits in lower case.
std::uint32_t parse_crc(const std::string& digits, const std::string& what,
                        const std::string& part);

// `text` as a string in JSON. Throws InvalidArgumentError if it is not UTF-8.
std::string quoted(const std::string& text, const std::string& what);

// --- headers ---

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

// --- files ---

// A tensor whose elements are produced when they are written.
struct TensorToWrite {
  std::string name;
  DType dtype = float32;
  Shape shape;
  std::function<Tensor()> value;  // of that dtype and shape, on any device
};

// Checksums of the tensors' bytes in chunks of kChunkBytes, so that every read of a part can be
// checked. The last chunk may be smaller.
inline constexpr std::uint64_t kChunkBytes = 1 << 20;

// Where a tensor was written.
struct WrittenTensor {
  SafetensorsEntry entry;
  std::vector<std::uint32_t> chunk_crcs;
};
struct WrittenFile {
  std::uint64_t bytes = 0;
  std::uint64_t data_begin = 0;
  std::vector<WrittenTensor> tensors;
};

// Throws InvalidArgumentError for a name that says another format, by which other tools would read
// the file.
void expect_safetensors_name(const std::filesystem::path& path);
// Writes a file with tensors in one pass. `what` names it in messages. Throws InvalidArgumentError
// for names that the format cannot store.
WrittenFile write_safetensors(AtomicFile& out, std::vector<TensorToWrite> tensors,
                              const std::map<std::string, std::string>& metadata,
                              const std::string& what);
// The tensors of a map, all of them defined.
std::vector<TensorToWrite> to_write(const std::map<std::string, Tensor>& tensors,
                                    const std::string& what);

// `size`: number of bytes in `in`. `what` names the source in messages. Throws the errors of
// load_safetensors(). Never allocates more than `size` justifies, whatever the header claims.
TensorFile read_safetensors(std::istream& in, std::uint64_t size, const std::string& what);
// The same from memory.
TensorFile parse_safetensors(const std::string& bytes, const std::string& what);
// The bytes that save_safetensors() would write.
std::string safetensors_bytes(const TensorFile& file, const std::string& what);

}  // namespace tandem
