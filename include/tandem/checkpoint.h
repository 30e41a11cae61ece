// Named tensors in files, and whole training states.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "tandem/tensor.h"
#include "tandem/variable.h"

namespace tandem {

// What a safetensors file holds.
struct TensorFile {
  std::map<std::string, Tensor> tensors{};        // on the host
  std::map<std::string, std::string> metadata{};  // "__metadata__"
};

// Writes the safetensors format (Hugging Face): readable by its Python package. Writes beside the
// file, syncs, and renames: a full disk or a crash leaves the old file as it was. A CRC-32 of the
// data goes in the metadata. Throws ResourceExhaustedError (disk full), NotFoundError (no such
// directory), each naming the path.
void save_safetensors(const std::filesystem::path& path, const TensorFile& file);
// Throws NotFoundError, DataLossError (truncated, bad header, offsets that overlap or pass the end,
// a checksum that does not match), InvalidArgumentError (a dtype that Tandem does not have), each
// naming the path and the tensor.
TensorFile load_safetensors(const std::filesystem::path& path);

// Assigns to each variable the tensor of its name. `what` goes in messages. Throws NotFoundError
// for missing tensors, InvalidArgumentError for extra ones and for other shapes or dtypes, before
// anything is assigned.
void restore_variables(const std::vector<Variable>& variables,
                       const std::map<std::string, Tensor>& tensors, const std::string& what);

}  // namespace tandem
