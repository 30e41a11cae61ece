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

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tandem/checkpoint.h"

namespace tandem {

// The files NAME-NUMBER.safetensors of the directory, by number. Throws std::filesystem errors if
// the directory cannot be read.
std::vector<std::pair<std::int64_t, std::filesystem::path>> numbered_files(
    const std::filesystem::path& directory, const std::string& name);

// --- ranges of tensors: intersection, division, and copies between them ---

// All elements of a tensor.
TensorRange whole(const Shape& shape);
// Rows [begin, end) of a tensor. REQUIRES: a rank of at least 1.
TensorRange rows_of(const Shape& shape, std::int64_t begin, std::int64_t end);
// Divides a tensor along its first axis into at most `shards` ranges whose sizes differ by at most
// one, the larger ones first. A scalar, or an empty first axis, is one range.
std::vector<TensorRange> divide(const Shape& shape, int shards);
// Whether the range is of the shape's rank and within it.
bool within(const TensorRange& range, const Shape& shape);
// The common elements; none if there are none. REQUIRES: equal ranks.
std::optional<TensorRange> intersect(const TensorRange& a, const TensorRange& b);

// Calls `visit` for each stretch of the elements of `range` that is contiguous in both `from` and
// `to`, two ranges that include it, stored row by row: with the number of its first element in each
// and its number of elements.
using VisitRun = std::function<void(std::int64_t from, std::int64_t to, std::int64_t count)>;
void for_each_run(const TensorRange& range, const TensorRange& from, const TensorRange& to,
                  const VisitRun& visit);

// The first problem of slices that should be the whole of a tensor, as the end of a sentence such
// as "tensor 'x' ..."; none if there is no problem.
std::optional<std::string> find_gap(const std::vector<TensorRange>& slices, const Shape& shape);

// "[0:3, 2:4]"
std::string text_of(const TensorRange& range);

// --- indices ---

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
