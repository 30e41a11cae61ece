// `tandem checkpoint`: lists, shows, verifies, converts and compares checkpoints.
#include "tandem/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <memory>

#include "commands.h"
#include "tandem/creation.h"
#include "tandem/device.h"
#include "tandem/errors.h"
#include "tandem/math.h"
#include "workload.h"

namespace tandem::tools {
namespace {

constexpr int kDifferent = 1;  // the exit code of diff, as that of diff(1)

std::uint64_t size_of_files(const CheckpointReader& checkpoint) {
  std::uint64_t bytes = 0;
  for (const CheckpointFile& file : checkpoint.files()) bytes += file.bytes;
  return bytes;
}

std::string metadata_or(const CheckpointReader& checkpoint, const char* key, const char* other) {
  const auto found = checkpoint.metadata().find(key);
  return found == checkpoint.metadata().end() ? other : found->second;
}

// "epoch 3, step 20" for a state of fit(), whose steps count within an epoch.
std::string step_of(const CheckpointReader& checkpoint) {
  const std::string step = metadata_or(checkpoint, "step", "-");
  const auto epoch = checkpoint.metadata().find("epoch");
  return epoch == checkpoint.metadata().end()
             ? step
             : fmt::format("epoch {}, step {}", epoch->second, step);
}

// Whether the file is one of those that an index names.
bool is_part(const CheckpointReader& checkpoint) {
  return checkpoint.metadata().contains("tandem.index");
}

void list(const std::string& directory) {
  if (!std::filesystem::is_directory(directory))
    throw NotFoundError(fmt::format("[checkpoint] '{}' is not a directory", directory));
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(directory))
    if (entry.is_regular_file() && !entry.path().filename().string().starts_with('.'))
      paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  for (const std::filesystem::path& path : paths) {
    const std::string name = path.filename().string();
    try {
      const CheckpointReader checkpoint(path);
      if (is_part(checkpoint)) continue;
      std::cout << fmt::format("{}: {}, {} tensors, {} bytes in {} files\n", name,
                               step_of(checkpoint), checkpoint.tensors().size(),
                               size_of_files(checkpoint), checkpoint.files().size());
    } catch (const Error& error) {
      // Other files have no extension of a checkpoint.
      if (name.ends_with(".safetensors") || name.ends_with(".index.json"))
        std::cout << fmt::format("{}: {}: {}\n", name, error.kind(), error.what());
    }
  }
}

std::string text_of(const TensorRange& range) {
  std::string text;
  for (int axis = 0; axis < range.shape.rank(); ++axis)
    text += fmt::format("{}{}:{}", axis == 0 ? "" : ", ", range.offset[axis],
                        range.offset[axis] + range.shape[axis]);
  return fmt::format("[{}]", text);
}

void show(const std::string& path) {
  const CheckpointReader checkpoint(path);
  std::cout << fmt::format("{}: {} tensors, {} bytes in {} files, {}\n", path,
                           checkpoint.tensors().size(), size_of_files(checkpoint),
                           checkpoint.files().size(),
                           checkpoint.has_checksums() ? "with checksums" : "without checksums");
  for (const auto& [key, value] : checkpoint.metadata())
    if (value.find('\n') == std::string::npos) std::cout << fmt::format("  {} = {}\n", key, value);
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    std::cout << fmt::format("{} {} {}\n", name, name_of(tensor.dtype), tensor.shape.to_string());
    if (!checkpoint.indexed()) continue;
    for (const CheckpointSlice& slice : tensor.slices)
      std::cout << fmt::format("  {} in {}\n", text_of(slice.range),
                               checkpoint.files()[slice.file].path.filename().string());
  }
}

void verify(const std::string& path) {
  const CheckpointReader checkpoint(path);
  checkpoint.verify();
  std::cout << fmt::format(
      "{}: {} tensors, {} bytes, {}\n", path, checkpoint.tensors().size(),
      size_of_files(checkpoint),
      checkpoint.has_checksums() ? "all checksums are right" : "it has no checksums");
}

// The largest absolute difference of the elements; NaN equals NaN.
double difference(const Tensor& a, const Tensor& b) {
  const std::vector<double> x = a.to(float64).to_vector<double>(),
                            y = b.to(float64).to_vector<double>();
  double largest = 0.0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (x[i] == y[i] || (std::isnan(x[i]) && std::isnan(y[i]))) continue;
    const double distance = std::abs(x[i] - y[i]);
    largest = std::isnan(distance) ? INFINITY : std::max(largest, distance);
  }
  return largest;
}

// Returns the exit code.
int diff(const std::string& path, const std::string& other_path) {
  const DeviceScope host("/cpu:0");
  const CheckpointReader a(path), b(other_path);
  bool same = true;
  const auto report = [&](const std::string& line) {
    std::cout << line << '\n';
    same = false;
  };
  for (const auto& [name, tensor] : a.tensors()) {
    const auto found = b.tensors().find(name);
    if (found == b.tensors().end()) {
      report(fmt::format("{}: only in {}", name, path));
      continue;
    }
    const CheckpointTensor& other = found->second;
    if (tensor.dtype != other.dtype || !(tensor.shape == other.shape))
      report(fmt::format("{}: {} {} and {} {}", name, name_of(tensor.dtype),
                         tensor.shape.to_string(), name_of(other.dtype), other.shape.to_string()));
    else if (const double largest = difference(a.read(name), b.read(name)); largest > 0.0)
      report(fmt::format("{}: the largest difference is {}", name, largest));
  }
  for (const auto& [name, tensor] : b.tensors())
    if (!a.tensors().contains(name)) report(fmt::format("{}: only in {}", name, other_path));
  return same ? 0 : kDifferent;
}

struct Options {
  std::string path, other, dtype, prefix;
  int shards = 1;
};

void convert(const Options& options) {
  ConvertOptions how{.shards = options.shards, .prefix = options.prefix};
  if (!options.dtype.empty()) how.dtype = dtype_from_name(options.dtype);
  convert_checkpoint(options.path, options.other, how);
}

}  // namespace

void add_checkpoint_command(Command program) {
  const auto options = std::make_shared<Options>();
  Command command =
      program.command("checkpoint", "List, show, verify, convert and compare checkpoints");
  command.requires_command();
  const auto add = [&](const char* name, const char* description, const char* positional,
                       const char* what) {
    Command made = command.command(name, description);
    made.option(positional, options->path, what).required();
    return made;
  };
  add("ls", "List the checkpoints of a directory with their steps and sizes", "directory",
      "Directory")
      .runs([options] { list(options->path); });
  add("show", "List the tensors of a checkpoint with dtypes, shapes, slices and files", "path",
      "Checkpoint: a safetensors file or an index")
      .runs([options] { show(options->path); });
  add("verify", "Check the checksums, slices and dtypes of a checkpoint", "path", "Checkpoint")
      .runs([options] { verify(options->path); });
  Command converter = add("convert", "Write a checkpoint in another number of files or dtype",
                          "from", "Checkpoint to read");
  converter.option("to", options->other, "Checkpoint to write").required();
  converter
      .option("--shards", options->shards,
              "Number of files that tensors are divided over; 1: one safetensors file")
      .at_least(1);
  converter.option("--dtype", options->dtype, "Dtype of all floating-point tensors");
  converter.option("--prefix", options->prefix,
                   "Only tensors whose names begin so, without this beginning: model/");
  converter.runs([options] { convert(*options); });
  Command comparer =
      add("diff", "Compare two checkpoints; exits with 1 if they differ", "path", "Checkpoint");
  comparer.option("other", options->other, "Checkpoint to compare with").required();
  comparer.runs([options] { return diff(options->path, options->other); });
}

}  // namespace tandem::tools
