/// @file
/// Files of images, JPEG and PNG, and folders of them as datasets.
/// @code
/// // flowers/daisy/1.jpg, flowers/daisy/2.png, flowers/tulip/1.jpg, ...
/// const auto train = td::utils::image_dataset_from_directory(
///     "flowers",
///     {.image_size = {180, 180}, .seed = 1, .validation_split = 0.2, .subset = "training"});
/// for (const auto& [images, labels] : train)  // float32 [32, 180, 180, 3], int32 [32]
///   step(images, labels);
/// @endcode
///
/// They need libjpeg-turbo and libpng, with which Tandem is built if they are installed
/// (scripts/setup); without, all functions throw UnavailableError that names the packages. Errors
/// of files name the file: NotFoundError, DataLossError with the reason and the row for a file that
/// is broken or cut off, and InvalidArgumentError for another format or too many pixels.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tandem/data.h"
#include "tandem/data_loader.h"
#include "tandem/tensor.h"

namespace tandem::image {

/// Options of decode_image() and read_image().
struct DecodeOptions {
  /// 1: grey, 3: red, green and blue, 4: with alpha, which is 255 without one in the file; 0: as in
  /// the file, where CMYK is 3 and grey with alpha is 4.
  std::int64_t channels = 0;
  /// A larger image is an error, before memory is allocated for it. Default: where Pillow refuses.
  std::int64_t max_pixels = 178'956'970;
};
/// The pixels of a JPEG or PNG image: uint8 [height, width, channels] in CPU memory. `bytes`: uint8
/// [size], the contents of the file. Samples of 16 bits lose their lower 8, and an alpha channel
/// that is not asked for is dropped, as in Pillow; the orientation of EXIF is not applied. As
/// tf.io.decode_image.
[[nodiscard]] Tensor decode_image(const Tensor& bytes, const DecodeOptions& options = {});
/// The same of a file. As torchvision.io.read_image, but channels-last.
[[nodiscard]] Tensor read_image(const std::string& path, const DecodeOptions& options = {});
/// A PNG image as bytes, uint8 [size], of pixels: uint8 [height, width, channels] with 1, 3 or 4
/// channels. Throws DTypeError and ShapeError for others. As tf.io.encode_png.
[[nodiscard]] Tensor encode_png(const Tensor& image);
/// A JPEG image of 1 or 3 channels. Throws InvalidArgumentError for a quality outside [1, 100]. As
/// tf.io.encode_jpeg.
[[nodiscard]] Tensor encode_jpeg(const Tensor& image, std::int64_t quality = 95);

}  // namespace tandem::image

namespace tandem::utils {

/// Options of image_dataset_from_directory(). As Keras.
struct ImageDatasetOptions {
  bool labels = true;  ///< whether elements have labels; false: the images of all sub-folders alone
  /// "int": int32 [batch]. "categorical": one-hot float32 [batch, classes]. "binary": float32
  /// [batch, 1] of two classes.
  std::string label_mode = "int";
  /// The names of the sub-folders, in the order of their labels. Default: sorted.
  std::vector<std::string> class_names{};
  std::string color_mode = "rgb";  ///< or "grayscale", "rgba"
  /// Examples in a batch. None: elements are single images, to be changed or filtered before
  /// batch().
  std::optional<std::int64_t> batch_size = 32;
  std::pair<std::int64_t, std::int64_t> image_size = {256, 256};  ///< height and width
  bool shuffle = true;  ///< a new random order in each epoch; false: by class and name
  std::optional<std::uint64_t> seed{};  ///< of the order; default: as Dataset::shuffle()
  /// The part of the images that is kept for validation: the last ones in the order of the seed.
  double validation_split = 0.0;
  std::string subset{};                    ///< "training" or "validation", with validation_split
  std::string interpolation = "bilinear";  ///< or "nearest": ResizeOptions::method
  bool crop_to_aspect_ratio = false;       ///< as image::ResizeOptions
  bool pad_to_aspect_ratio = false;        ///< as image::ResizeOptions
  /// Threads that read and decode, as MapOptions::num_parallel_calls.
  int num_parallel_calls = data::kAutotune;
  std::int64_t max_pixels = 178'956'970;  ///< as image::DecodeOptions
  /// @{
  /// Every num_shards-th image, beginning with image shard_index, for one of several workers, which
  /// shuffle with one seed. As Dataset::shard(), but the images of the others are not read.
  std::int64_t num_shards = 1;
  std::int64_t shard_index = 0;
  /// @}
};
/// A dataset of images of a folder.
struct ImageDataset : data::Dataset {
  std::vector<std::string> class_names{};  ///< by label
  std::vector<std::string>
      file_paths{};  ///< of the images of all shards, in the order of an epoch without shuffle
};
/// A dataset of the JPEG and PNG files in the sub-folders of `directory`, at any depth, where the
/// sub-folder is the class: batches {images, labels}, or {images}; float32 images of [0, 255].
/// Files are read when an element is requested, so that they need not fit into memory, and not for
/// elements that iterate() skips. The call reads names alone.
///
/// Throws NotFoundError for a directory that does not exist; InvalidArgumentError without images,
/// for image files of other formats, class names that are not those of the sub-folders, a split
/// without a seed, and other options. As tf.keras.utils.image_dataset_from_directory.
ImageDataset image_dataset_from_directory(const std::string& directory,
                                          const ImageDatasetOptions& options = {});

}  // namespace tandem::utils

namespace tandem::datasets {

/// Options of ImageFolder. As torchvision.
struct ImageFolderOptions {
  /// Makes a component of an image, uint8 [height, width, 3]. Default: the image.
  std::function<Tensor(const Tensor& image)> transform{};
  /// Makes the label, int64, of that of a class.
  std::function<std::int64_t(std::int64_t label)> target_transform{};
  bool allow_empty = false;  ///< whether a sub-folder may have no images
};
/// The images of a folder by index, for data::DataLoader: {image, label}, an int64 scalar. Each
/// sub-folder is a class, sorted by name; its images are sorted, at any depth. Throws NotFoundError
/// "Couldn't find any class folder in ..." or for a class without images, as torchvision. As
/// torchvision.datasets.ImageFolder.
/// @code
/// td::datasets::ImageFolder folder("flowers", {.transform = resized});
/// td::data::DataLoader loader(folder, {.batch_size = 32, .shuffle = true, .num_workers = 2});
/// @endcode
class ImageFolder {
 public:
  /// Reads the names of the files.
  explicit ImageFolder(const std::string& root, const ImageFolderOptions& options = {});

  std::vector<std::string> classes{};                           ///< by label
  std::map<std::string, std::int64_t> class_to_idx{};           ///< labels by class
  std::vector<std::pair<std::string, std::int64_t>> samples{};  ///< files and labels, by index

  std::int64_t size() const { return static_cast<std::int64_t>(samples.size()); }  ///< number
  /// Reads an example. Throws OutOfRangeError.
  data::Example operator[](std::int64_t index) const;
  /// The same examples.
  operator data::IndexedDataset() const;  // NOLINT: implicit

 private:
  ImageFolderOptions options_;
};

}  // namespace tandem::datasets
