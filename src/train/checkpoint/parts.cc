#include "train/checkpoint/parts.h"

#include <algorithm>
#include <random>
#include <regex>

#include "core/atomic_file.h"
#include "core/file_error.h"
#include "core/log.h"
#include "core/status.h"
#include "train/checkpoint/safetensors.h"
#include "train/checkpoint/tensor_range.h"

namespace tandem {
namespace {

constexpr const char* kIndexKey = "tandem.index";  // metadata of a part: the name of its index

// Whether `name` is that of a part of `path`, of whichever save.
bool is_part_of(const std::filesystem::path& path, const std::string& name) {
  static const auto& suffix =
      *new const std::regex(R"(\.[0-9a-f]{8}-[0-9]{5,}-of-[0-9]{5,}\.safetensors)");
  const std::string prefix = path.filename().string();
  return name.starts_with(prefix) &&
         std::regex_match(name.begin() + static_cast<std::ptrdiff_t>(prefix.size()), name.end(),
                          suffix);
}

// The file that a temporary file of AtomicFile is for: ".TARGET.HOST-PROCESS-NUMBER.tmp".
std::string target_of_temporary(const std::string& name) {
  if (!name.starts_with('.') || !name.ends_with(".tmp")) return {};
  const std::string inner = name.substr(1, name.size() - 5);
  const std::size_t dot = inner.rfind('.');
  return dot == std::string::npos ? std::string() : inner.substr(0, dot);
}

// Removes the parts of `path` other than those in `keep`.
void remove_parts(const std::filesystem::path& path, const std::set<std::string>& keep) {
  const std::filesystem::path directory =
      path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
  std::error_code error;
  std::set<std::filesystem::path> parts;
  std::set<std::string> written;  // targets of temporary files
  for (auto at = std::filesystem::directory_iterator(directory, error);
       !error && at != std::filesystem::directory_iterator(); at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (is_part_of(path, name) && !keep.contains(name)) parts.insert(at->path());
    if (const std::string target = target_of_temporary(name); is_part_of(path, target))
      written.insert(target);
  }
  for (const std::string& target : written) remove_stale_files(directory / target);
  for (const std::filesystem::path& part : parts) {
    std::filesystem::remove(part, error);
    if (error) logging::warn("[save] cannot remove '{}': {}", part.string(), error.message());
  }
}

// The name of a slice in its file. The index has the tensor's.
std::string key_of(const TensorToSave& tensor) {
  return tensor.slice ? tensor.name + text_of(tensor.slice->range) : tensor.name;
}

TensorToWrite to_write(const TensorToSave& tensor, const std::string& what) {
  if (!tensor.value.defined())
    fail<InvalidArgumentError>("[save] '{}': tensor '{}' is undefined", what, tensor.name);
  return {.name = key_of(tensor),
          .dtype = tensor.value.dtype(),
          .shape = tensor.value.shape(),
          .value = [value = tensor.value] { return value; }};
}

std::vector<TensorToWrite> to_write(const std::vector<TensorToSave>& tensors,
                                    const std::string& what) {
  std::vector<TensorToWrite> result;
  std::set<std::string> names;
  for (const TensorToSave& tensor : tensors) {
    result.push_back(to_write(tensor, what));
    if (!names.insert(result.back().name).second)
      fail<InvalidArgumentError>("[save] '{}': two tensors are named '{}'", what,
                                 result.back().name);
  }
  return result;
}

}  // namespace

std::filesystem::path resolve_link(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::is_symlink(path, error)) return path;
  const std::filesystem::path target = std::filesystem::weakly_canonical(path, error);
  return error ? path : target;
}

std::string make_save_id() {
  std::random_device random;
  return fmt::format("{:08x}", static_cast<std::uint32_t>(random()));
}

std::string part_name(const std::filesystem::path& path, const std::string& save_id, int part,
                      int parts) {
  return fmt::format("{}.{}-{:05}-of-{:05}.safetensors", path.filename().string(), save_id,
                     part + 1, parts);
}

CheckpointIndex write_part(const std::filesystem::path& path, const std::string& name,
                           const std::vector<TensorToSave>& tensors) {
  const std::filesystem::path file = path.parent_path() / name;
  std::map<std::string, const TensorToSave*> by_key;
  for (const TensorToSave& tensor : tensors) by_key.emplace(key_of(tensor), &tensor);
  const auto elements = to_write(tensors, path.string());
  AtomicFile out(file);
  const WrittenFile written =
      write_safetensors(out, elements, {{kIndexKey, path.filename().string()}}, file.string());
  out.commit();
  CheckpointIndex index{.files = {{.path = name, .bytes = written.bytes}}};
  for (const WrittenTensor& record : written.tensors) {
    const TensorToSave& tensor = *by_key.at(record.entry.name);
    const Shape& shape = tensor.slice ? tensor.slice->shape : record.entry.shape;
    index.tensors
        .emplace(tensor.name, CheckpointTensor{.dtype = record.entry.dtype, .shape = shape})
        .first->second.slices.push_back({.range = tensor.slice ? tensor.slice->range : whole(shape),
                                         .begin = written.data_begin + record.entry.begin,
                                         .chunk_crcs = record.chunk_crcs});
  }
  return index;
}

void commit_index(const std::filesystem::path& path, const CheckpointIndex& index) {
  if (const auto problem = find_incomplete(index))
    fail<InvalidArgumentError>("[save] '{}': {}", path.string(), *problem);
  const std::string text = index_text(index, path.string());
  AtomicFile out(path);
  out.write(text.data(), text.size());
  out.commit();
  std::set<std::string> keep;
  for (const CheckpointFile& file : index.files) keep.insert(file.path.string());
  remove_parts(path, keep);
}

void commit_single(const std::filesystem::path& path, const std::vector<TensorToSave>& tensors,
                   const std::map<std::string, std::string>& metadata) {
  const auto elements = to_write(tensors, path.string());
  AtomicFile out(path);
  write_safetensors(out, elements, metadata, path.string());
  out.commit();
  remove_parts(path, {});
}

void remove_unused_parts(const std::filesystem::path& path) {
  const std::filesystem::path target = resolve_link(path);
  remove_stale_files(target);
  std::set<std::string> keep;
  std::error_code error;
  if (std::filesystem::exists(target, error)) {
    try {
      const CheckpointReader checkpoint(target);
      for (const CheckpointFile& file : checkpoint.files())
        keep.insert(file.path.filename().string());
    } catch (const Error&) {
      return;  // its parts may be needed to repair it
    }
  }
  remove_parts(target, keep);
}

void remove_checkpoint(const std::filesystem::path& path) {
  const std::filesystem::path target = resolve_link(path);
  std::error_code error;
  std::filesystem::remove(target, error);
  if (error)
    throw_file_error(fmt::format("[remove_checkpoint] cannot remove '{}'", path.string()),
                     error.value());
  remove_parts(target, {});
}

}  // namespace tandem
