// File formats of data sets, parsed from memory. `name` is the file's name, for messages.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/array_files.h"
#include "tandem/csv.h"
#include "tandem/datasets.h"

namespace tandem::data {

// Reads a whole file. Throws NotFoundError, InvalidArgumentError if it is a directory, and
// DataLossError if it cannot be read to its end.
std::vector<std::byte> read_file(std::string_view op, const std::string& path);

// See tandem/datasets.h for the formats and the errors.
Tensor parse_idx(std::span<const std::byte> bytes, std::string_view name);
tandem::datasets::LabelledImages parse_cifar10(std::span<const std::byte> bytes,
                                               std::string_view name);

// See tandem/array_files.h.
Tensor parse_npy(std::span<const std::byte> bytes, std::string_view name,
                 const NpyOptions& options);
std::map<std::string, Tensor> parse_npz(std::span<const std::byte> bytes, std::string_view name,
                                        const NpyOptions& options);
std::string npy_of(const Tensor& tensor);

// Like read_csv(), of the contents of a file.
Table parse_csv(std::string_view text, std::string_view name, const CsvOptions& options);

}  // namespace tandem::data
