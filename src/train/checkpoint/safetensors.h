// Writes and reads safetensors files; tandem/checkpoint.h has the public API.
#pragma once

#include <cstdint>
#include <functional>
#include <istream>
#include <map>
#include <string>
#include <vector>

#include "core/atomic_file.h"
#include "tandem/checkpoint.h"
#include "train/checkpoint/safetensors_format.h"

namespace tandem {

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
