// The index of a checkpoint: a JSON file that names the files with the tensors, and which slices
// each holds. Its rename is what makes a new checkpoint the present one.
//
// The format, version 1. "checksum" is the CRC-32 of the file with zeros as its digits.
//
//   {"format": "tandem.checkpoint", "version": 1, "checksum": "0a1b2c3d",
//    "metadata": {string: string},
//    "files": [{"name": ..., "bytes": ...}],
//    "tensors": {"name": {"dtype": "F32", "shape": [13, 5],
//                         "slices": [{"file": 0, "begin": 512, "offset": [0, 0], "shape": [3, 5],
//                                     "crc32": ["0a1b2c3d"]}]}}}
//
// A file is in the directory of the index. "begin" counts from the file's first byte.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tandem/checkpoint.h"

namespace tandem {

struct CheckpointIndex {
  std::map<std::string, std::string> metadata;
  std::vector<CheckpointFile> files;  // `path`: a name without directories
  std::map<std::string, CheckpointTensor> tensors;
};

// Throws InvalidArgumentError for names that are not UTF-8. `what`: the path, for messages.
std::string index_text(const CheckpointIndex& index, const std::string& what);
// The inverse. Throws DataLossError for a text that is damaged or whose slices exceed files or
// tensors, and InvalidArgumentError for another version or a dtype that Tandem does not have.
// `complete`: whether slices must not leave elements out; those of one process's tensors may.
CheckpointIndex parse_index(const std::string& text, const std::string& what, bool complete = true);

// The index of a sharded model of the transformers library:
// {"metadata": {...}, "weight_map": {name: file}}.
struct WeightMap {
  std::map<std::string, std::string> metadata;
  std::map<std::string, std::string> files;  // by tensor
};
// Whether it may be such an index, rather than one of Tandem's.
bool is_weight_map(const std::string& text);
WeightMap parse_weight_map(const std::string& text, const std::string& what);

// Combines what several processes have written. Throws InvalidArgumentError if two of them describe
// a tensor differently.
CheckpointIndex merge(const std::vector<CheckpointIndex>& parts, const std::string& what);
// The first tensor whose slices overlap or leave elements out: "tensor 'x' has ..."; none if there
// is none.
std::optional<std::string> find_incomplete(const CheckpointIndex& index);

}  // namespace tandem
