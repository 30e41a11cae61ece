// Folders of images as datasets: the sub-folders are classes.
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <random>

#include "core/status.h"
#include "data/stream.h"
#include "tandem/array.h"
#include "tandem/creation.h"
#include "tandem/image.h"
#include "tandem/image_files.h"
#include "tandem/math.h"
#include "tandem/random.h"

namespace tandem {
namespace {

namespace fs = std::filesystem;

// A file with its label.
using Sample = std::pair<std::string, std::int64_t>;

void expect_directory(const char* op, const std::string& directory) {
  std::error_code unreadable;
  if (!fs::is_directory(directory, unreadable))
    fail<NotFoundError>("[{}] {}: expected a directory, got {}", op, directory,
                        fs::exists(directory, unreadable) ? "a file" : "nothing");
}

// The sub-folders, sorted.
std::vector<std::string> folders_in(const char* op, const std::string& directory) {
  expect_directory(op, directory);
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory))
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

std::string extension_of(const fs::path& path) {
  std::string extension = path.extension().string();
  for (char& c : extension) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return extension;
}

bool is_one_of(const std::string& name, std::initializer_list<const char*> names) {
  return std::any_of(names.begin(), names.end(), [&](const char* each) { return name == each; });
}

// The images of a folder, at any depth, sorted by path. Images of formats that cannot be decoded
// are an error: they would be left out unnoticed.
std::vector<std::string> images_in(const char* op, const fs::path& folder) {
  std::vector<std::string> paths;
  for (const fs::directory_entry& entry :
       fs::recursive_directory_iterator(folder, fs::directory_options::follow_directory_symlink)) {
    if (!entry.is_regular_file()) continue;
    const std::string extension = extension_of(entry.path());
    if (is_one_of(extension, {".jpg", ".jpeg", ".png"}))
      paths.push_back(entry.path().string());
    else if (is_one_of(extension, {".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"}))
      fail<InvalidArgumentError>("[{}] {}: expected JPEG and PNG images: convert or remove it", op,
                                 entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

constexpr const char* kDirectory = "image_dataset_from_directory";

// The classes in the order of their labels.
std::vector<std::string> classes_of(const std::string& directory,
                                    const std::vector<std::string>& wanted) {
  std::vector<std::string> names = folders_in(kDirectory, directory);
  if (wanted.empty()) return names;
  std::vector<std::string> sorted = wanted;
  std::sort(sorted.begin(), sorted.end());
  if (sorted != names)
    fail<InvalidArgumentError>(
        "[{}] expected class_names that are the sub-folders of '{}', {}; got {}", kDirectory,
        directory, fmt::format("{}", fmt::join(names, ", ")),
        fmt::format("{}", fmt::join(wanted, ", ")));
  return wanted;
}

enum class LabelMode { kNone, kInt, kCategorical, kBinary };

LabelMode label_mode_of(const utils::ImageDatasetOptions& options, std::size_t classes) {
  const std::string& name = options.label_mode;
  if (!is_one_of(name, {"int", "categorical", "binary"}))
    fail<InvalidArgumentError>(
        "[{}] expected label_mode 'int', 'categorical' or 'binary', got '{}'", kDirectory, name);
  if (!options.labels) return LabelMode::kNone;
  if (name == "binary" && classes != 2)
    fail<InvalidArgumentError>("[{}] expected two classes with label_mode 'binary', got {}",
                               kDirectory, classes);
  return name == "int"           ? LabelMode::kInt
         : name == "categorical" ? LabelMode::kCategorical
                                 : LabelMode::kBinary;
}

std::int64_t channels_of(const std::string& color_mode) {
  if (color_mode == "rgb") return 3;
  if (color_mode == "grayscale") return 1;
  if (color_mode == "rgba") return 4;
  fail<InvalidArgumentError>("[{}] expected color_mode 'rgb', 'grayscale' or 'rgba', got '{}'",
                             kDirectory, color_mode);
}

void check(const utils::ImageDatasetOptions& options) {
  if (options.image_size.first < 1 || options.image_size.second < 1)
    fail<InvalidArgumentError>("[{}] expected an image_size of at least 1 x 1, got {} x {}",
                               kDirectory, options.image_size.first, options.image_size.second);
  if (options.interpolation != "bilinear" && options.interpolation != "nearest")
    fail<InvalidArgumentError>("[{}] expected interpolation 'bilinear' or 'nearest', got '{}'",
                               kDirectory, options.interpolation);
  if (options.crop_to_aspect_ratio && options.pad_to_aspect_ratio)
    fail<InvalidArgumentError>(
        "[{}] expected one of crop_to_aspect_ratio and pad_to_aspect_ratio, got both", kDirectory);
  const double split = options.validation_split;
  if (!(split >= 0.0 && split < 1.0))
    fail<InvalidArgumentError>("[{}] expected a validation_split of [0, 1), got {}", kDirectory,
                               split);
  if ((split > 0.0) == options.subset.empty())
    fail<InvalidArgumentError>("[{}] expected a subset with validation_split and not without",
                               kDirectory);
  if (!is_one_of(options.subset, {"", "training", "validation"}))
    fail<InvalidArgumentError>("[{}] expected the subset 'training' or 'validation', got '{}'",
                               kDirectory, options.subset);
  if (split > 0.0 && options.shuffle && !options.seed)
    fail<InvalidArgumentError>(
        "[{}] expected a seed with validation_split and shuffle: training and validation data "
        "would "
        "overlap without",
        kDirectory);
}

// The samples of the subset, in one random order if the data is shuffled.
std::vector<Sample> subset_of(std::vector<Sample> samples,
                              const utils::ImageDatasetOptions& options) {
  if (options.validation_split == 0.0) return samples;
  if (options.shuffle) {
    std::mt19937_64 generator(*options.seed);
    for (std::size_t i = samples.size(); i > 1; --i)
      std::swap(samples[i - 1], samples[generator() % i]);
  }
  const auto kept = static_cast<std::ptrdiff_t>(
      samples.size() -
      static_cast<std::size_t>(options.validation_split * static_cast<double>(samples.size())));
  if (options.subset == "training")
    samples.erase(samples.begin() + kept, samples.end());
  else
    samples.erase(samples.begin(), samples.begin() + kept);
  return samples;
}

// Reads one example.
struct Load {
  std::shared_ptr<const std::vector<Sample>> samples;
  utils::ImageDatasetOptions options;
  LabelMode mode;
  std::int64_t classes, channels;

  data::Example operator()(const data::Example& element) const {
    const auto& [path, label] =
        (*samples)[static_cast<std::size_t>(element[0].item<std::int64_t>())];
    const Tensor pixels =
        image::read_image(path, {.channels = channels, .max_pixels = options.max_pixels});
    const Tensor resized =
        cast(image::resize(pixels, {options.image_size.first, options.image_size.second},
                           {.method = options.interpolation,
                            .crop_to_aspect_ratio = options.crop_to_aspect_ratio,
                            .pad_to_aspect_ratio = options.pad_to_aspect_ratio}),
             float32);
    switch (mode) {
      case LabelMode::kNone: return {resized};
      case LabelMode::kInt:
        return {resized, full(Shape::scalar(), static_cast<double>(label), int32)};
      case LabelMode::kCategorical:
        return {resized,
                one_hot(full(Shape::scalar(), static_cast<double>(label), int32), classes)};
      case LabelMode::kBinary: return {resized, full({1}, static_cast<double>(label), float32)};
    }
    return {};
  }
};

}  // namespace

namespace utils {

ImageDataset image_dataset_from_directory(const std::string& directory,
                                          const ImageDatasetOptions& options) {
  check(options);
  const std::vector<std::string> classes = classes_of(directory, options.class_names);
  const LabelMode mode = label_mode_of(options, classes.size());
  const std::int64_t channels = channels_of(options.color_mode);
  std::vector<Sample> all;
  for (std::size_t label = 0; label < classes.size(); ++label)
    for (std::string& path : images_in(kDirectory, fs::path(directory) / classes[label]))
      all.emplace_back(std::move(path), static_cast<std::int64_t>(label));
  all = subset_of(std::move(all), options);
  if (all.empty())
    fail<InvalidArgumentError>(
        "[{}] expected images (.jpg, .jpeg, .png) in the sub-folders of '{}', got none", kDirectory,
        directory);
  const auto samples = std::make_shared<const std::vector<Sample>>(std::move(all));
  data::Dataset dataset = data::Dataset::range(std::ssize(*samples));
  if (options.shuffle) dataset = dataset.shuffle(std::ssize(*samples), {.seed = options.seed});
  if (options.num_shards != 1) dataset = dataset.shard(options.num_shards, options.shard_index);
  dataset = dataset.map(data::MapFn(Load{samples, options, mode, std::ssize(classes), channels}),
                        {.num_parallel_calls = options.num_parallel_calls});
  if (options.batch_size) dataset = dataset.batch(*options.batch_size).prefetch(data::kAutotune);
  ImageDataset result{dataset};
  result.class_names = classes;
  for (const Sample& sample : *samples) result.file_paths.push_back(sample.first);
  return result;
}

}  // namespace utils

namespace datasets {

ImageFolder::ImageFolder(const std::string& root, const ImageFolderOptions& options)
    : options_(options) {
  constexpr const char* kOp = "ImageFolder";
  classes = folders_in(kOp, root);
  if (classes.empty()) fail<NotFoundError>("[{}] Couldn't find any class folder in {}.", kOp, root);
  for (const std::string& name : classes) {
    const std::int64_t label = std::ssize(class_to_idx);
    class_to_idx[name] = label;
    const std::vector<std::string> paths = images_in(kOp, fs::path(root) / name);
    if (paths.empty() && !options.allow_empty)
      fail<NotFoundError>(
          "[{}] Found no valid file for the class {}. Supported extensions are: .jpg, .jpeg, .png",
          kOp, name);
    for (const std::string& path : paths) samples.emplace_back(path, label);
  }
}

data::Example ImageFolder::operator[](std::int64_t index) const {
  if (index < 0 || index >= size())
    fail<OutOfRangeError>("[ImageFolder] expected an index of [0, {}), got {}", size(), index);
  const auto& [path, label] = samples[static_cast<std::size_t>(index)];
  const Tensor pixels = image::read_image(path, {.channels = 3});
  const std::int64_t target = options_.target_transform ? options_.target_transform(label) : label;
  return {options_.transform ? options_.transform(pixels) : pixels,
          full(Shape::scalar(), static_cast<double>(target), int64)};
}

ImageFolder::operator data::IndexedDataset() const {
  return {size(), [folder = std::make_shared<const ImageFolder>(*this)](std::int64_t index) {
            return (*folder)[index];
          }};
}

}  // namespace datasets
}  // namespace tandem
