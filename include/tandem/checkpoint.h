/// @file
/// Tensors in safetensors files, and restoring variables from them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "tandem/tensor.h"
#include "tandem/variable.h"

namespace tandem {

/// Contents of a safetensors file.
struct TensorFile {
  std::map<std::string, Tensor> tensors{};        ///< by name; on the host
  std::map<std::string, std::string> metadata{};  ///< strings of the "__metadata__" entry
};

/// Writes a file in the safetensors format, which the Python package of that name reads. Writes a
/// temporary file, syncs it and renames it, so that a full disk or a crash leaves the old file
/// unchanged. The metadata gets a CRC-32 of the data. Throws ResourceExhaustedError (disk full) or
/// NotFoundError (no such directory) and names the path.
void save_safetensors(const std::filesystem::path& path, const TensorFile& file);
/// Reads a safetensors file. Throws NotFoundError, DataLossError (truncated, bad header, offsets
/// that overlap or exceed the file, wrong checksum) or InvalidArgumentError (a dtype that Tandem
/// does not have), and names the path and the tensor.
TensorFile load_safetensors(const std::filesystem::path& path);

/// Assigns to each variable the tensor of its name. `what` describes the source in messages. Throws
/// NotFoundError for missing tensors and InvalidArgumentError for extra ones and for other shapes
/// or dtypes. Assigns nothing if it throws.
void restore_variables(const std::vector<Variable>& variables,
                       const std::map<std::string, Tensor>& tensors, const std::string& what);

}  // namespace tandem
