// Reads and writes the safetensors format; tandem/checkpoint.h has the public API.
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

// `size`: number of bytes in `in`. `what` names the source in messages. Throws the errors of
// load_safetensors(). Never allocates more than `size` justifies, whatever the header claims.
TensorFile read_safetensors(std::istream& in, std::uint64_t size, const std::string& what);
// The same from memory.
TensorFile parse_safetensors(const std::string& bytes, const std::string& what);
// The bytes that save_safetensors() would write.
std::string safetensors_bytes(const TensorFile& file, const std::string& what);

}  // namespace tandem
