#include "core/status.h"
#include "tandem/array.h"
#include "tandem/checkpoint.h"
#include "tandem/device.h"
#include "train/checkpoint/parts.h"
#include "train/checkpoint/tensor_range.h"

namespace tandem {
namespace {

TensorToSave slice_of(const CheckpointReader& from, const std::string& name,
                      const TensorRange& range, const ConvertOptions& options) {
  const CheckpointTensor& tensor = from.at(name);
  TensorToSave slice{.name = name.substr(options.prefix.size()), .value = from.read(name, range)};
  if (options.dtype && is_floating(tensor.dtype)) slice.value = slice.value.to(*options.dtype);
  if (!(range.shape == tensor.shape))
    slice.slice = TensorToSave::Slice{.shape = tensor.shape, .range = range};
  return slice;
}

// The tensors of shard `shard`, read from the checkpoint.
std::vector<TensorToSave> shard_of(const CheckpointReader& from, int shard,
                                   const ConvertOptions& options) {
  std::vector<TensorToSave> tensors;
  for (const auto& [name, dtype] : from.foreign())
    if (name.starts_with(options.prefix)) from.at(name);  // throws
  for (const auto& [name, tensor] : from.tensors()) {
    if (!name.starts_with(options.prefix)) continue;
    const std::vector<TensorRange> ranges = divide(tensor.shape, options.shards);
    if (static_cast<std::size_t>(shard) < ranges.size())
      tensors.push_back(slice_of(from, name, ranges[static_cast<std::size_t>(shard)], options));
  }
  return tensors;
}

void check(const ConvertOptions& options) {
  constexpr int kMaxShards = 10'000;
  if (options.shards < 1 || options.shards > kMaxShards)
    fail<InvalidArgumentError>("[convert_checkpoint] expected 1 to {} shards, got {}", kMaxShards,
                               options.shards);
  if (options.dtype && !is_floating(*options.dtype))
    fail<InvalidArgumentError>("[convert_checkpoint] expected a floating-point dtype, got {}",
                               name_of(*options.dtype));
}

}  // namespace

void convert_checkpoint(const std::filesystem::path& from, const std::filesystem::path& to,
                        const ConvertOptions& options) {
  check(options);
  const DeviceScope host("/cpu:0");
  const CheckpointReader source(from);
  const std::filesystem::path path = resolve_link(to);
  // The metadata of a training state describes its tensors.
  std::map<std::string, std::string> metadata;
  if (!options.dtype && options.prefix.empty()) metadata = source.metadata();
  if (options.shards == 1) return commit_single(path, shard_of(source, 0, options), metadata);
  const std::string id = make_save_id();
  std::vector<CheckpointIndex> parts;
  for (int shard = 0; shard < options.shards; ++shard) {
    const std::vector<TensorToSave> tensors = shard_of(source, shard, options);
    if (!tensors.empty())
      parts.push_back(write_part(path, part_name(path, id, shard, options.shards), tensors));
  }
  CheckpointIndex index = merge(parts, path.string());
  index.metadata = metadata;
  commit_index(path, index);
}

}  // namespace tandem
