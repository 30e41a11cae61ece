/// @file
/// Datasets by name, and readers of their file formats.
///
/// Readers throw NotFoundError for a missing file, InvalidArgumentError for another format or
/// values out of range, and DataLossError for a file that is empty, truncated, too long or corrupt.
/// Messages name the file and say what was expected and what was found.
#pragma once

#include <cstdint>
#include <string>

#include "tandem/data.h"
#include "tandem/data_loader.h"
#include "tandem/tensor.h"

/// Standard datasets and readers of their files.
namespace tandem::datasets {

/// Labelled images, in CPU memory.
struct LabelledImages {
  Tensor images{};            ///< uint8 [n, height, width, channels]
  Tensor labels{};            ///< int64 [n], values 0 to classes-1
  std::int64_t classes = 10;  ///< number of classes

  std::int64_t size() const { return labels.size(); }  ///< number of images
  /// A dataset with one element {image, label} per image.
  data::Dataset dataset() const { return data::Dataset::from_tensor_slices({images, labels}); }
  /// The same examples by index, for data::DataLoader.
  operator data::IndexedDataset() const {  // NOLINT: implicit
    return data::IndexedDataset::from_tensor_slices({images, labels});
  }
  /// The first `count` images, or all if there are fewer. Shares storage.
  LabelledImages take(std::int64_t count) const;
};

/// The two splits of a dataset.
struct TrainTest {
  LabelledImages train{};  ///< training examples
  LabelledImages test{};   ///< test examples
};

/// Reads a file in IDX format (http://yann.lecun.com/exdb/mnist) into a tensor on the CPU. Detects
/// gzip by content. Signed bytes and 16-bit integers become int32.
Tensor read_idx(const std::string& path);

/// Reads a file in CIFAR-10's binary format: per record a label byte, then 3,072 bytes of the 32 x
/// 32 red, green and blue planes. Images are channels-last: [n, 32, 32, 3].
LabelledImages read_cifar10(const std::string& path);

/// @{
/// The examples of one file, for data::Dataset::from_files(): {image, label} of a file in the
/// format of read_cifar10(), and {row} for the rows (indices of the first axis) of an IDX file.
/// A dataset of from_files() with one of these functions can be sent to the workers of a parameter
/// server strategy, which read the files of these paths on their machines.
data::Dataset cifar10_examples(const std::string& path);
data::Dataset idx_rows(const std::string& path);
/// @}

/// Loads MNIST, or a dataset in the same format (Fashion-MNIST), from four files in `directory`:
/// train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and
/// t10k-labels-idx1-ubyte, each with or without ".gz". Images are [n, 28, 28, 1].
TrainTest mnist(const std::string& directory);

/// Loads CIFAR-10 from its binary files in `directory`: those of data_batch_1.bin to
/// data_batch_5.bin that exist (at least one), and test_batch.bin.
TrainTest cifar10(const std::string& directory);

/// Options of synthetic_digits().
struct SyntheticDigitsOptions {
  std::int64_t train = 20'000;  ///< number of training images
  std::int64_t test = 2'000;    ///< number of test images
  std::uint64_t seed = 0;       ///< random seed
};
/// Generates images of digits: one glyph per digit, rotated, slanted, bent and shifted, of varying
/// size, thickness and contrast, with noise. About as hard as MNIST: a linear classifier reaches
/// less than 0.93, a small convolutional network more than 0.97. Images are [n, 28, 28, 1].
/// Image i of a split depends on the seed and i only.
TrainTest synthetic_digits(const SyntheticDigitsOptions& options = {});

}  // namespace tandem::datasets
