// The files beside an index that hold a checkpoint's tensors.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "train/checkpoint/index.h"

namespace tandem {

// A tensor to save, or a slice of it.
struct TensorToSave {
  std::string name;
  Tensor value;  // on any device; undefined if `load` gives it
  // The shape of the whole tensor, and which elements `value` has; none: all.
  struct Slice {
    Shape shape;
    TensorRange range;
  };
  std::optional<Slice> slice{};
  // Whether all workers pass this tensor, with equal elements. One of them writes it.
  bool replicated = true;
};

// The target of a symbolic link, or the path itself.
std::filesystem::path resolve_link(const std::filesystem::path& path);

// Eight hexadecimal digits that differ between saves, so that their files do.
std::string make_save_id();
// The name of one of the files of a save to `path`.
std::string part_name(const std::filesystem::path& path, const std::string& save_id, int part,
                      int parts);

// Writes a file beside `path`, durably, and returns its index. Throws the errors of
// save_safetensors().
CheckpointIndex write_part(const std::filesystem::path& path, const std::string& name,
                           const std::vector<TensorToSave>& tensors);
// Replaces `path` by an index, and removes the files of the one before. Throws
// InvalidArgumentError for slices that overlap or leave elements out, and the errors of
// save_safetensors().
void commit_index(const std::filesystem::path& path, const CheckpointIndex& index);
// Replaces `path` by one file with whole tensors.
void commit_single(const std::filesystem::path& path, const std::vector<TensorToSave>& tensors,
                   const std::map<std::string, std::string>& metadata);

// Removes what saves to `path` that did not end have left: files that its index does not name,
// and temporary files of ended processes of this host.
void remove_unused_parts(const std::filesystem::path& path);

}  // namespace tandem
