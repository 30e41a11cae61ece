// Reading the safetensors format from any stream; tandem/checkpoint.h has the public face.
//
// The format (https://github.com/huggingface/safetensors): the header's size in 8 bytes, little
// endian; the header, JSON, {"name": {"dtype", "shape", "data_offsets": [begin, end]}, ...,
// "__metadata__": {string: string}}; then the tensors' bytes without holes.
#pragma once

#include <cstdint>
#include <istream>
#include <string>

#include "tandem/checkpoint.h"

namespace tandem {

// `size`: the bytes that `in` holds. `what` names the source in messages. Throws as
// load_safetensors() does; allocates nothing that `size` does not justify.
TensorFile read_safetensors(std::istream& in, std::uint64_t size, const std::string& what);
// The same of bytes in memory.
TensorFile parse_safetensors(const std::string& bytes, const std::string& what);
// What save_safetensors() would write.
std::string safetensors_bytes(const TensorFile& file, const std::string& what);

}  // namespace tandem
