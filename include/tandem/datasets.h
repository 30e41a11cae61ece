// Data sets by name, and the file formats that they come in.
//
// Readers throw NotFoundError for a file that is not there, InvalidArgumentError for one of another
// format or with values out of range, and DataLossError for one that is empty, cut short, too long
// or corrupt. Messages name the file and show what was expected and what came.
#pragma once

#include <cstdint>
#include <string>

#include "tandem/data.h"
#include "tandem/data_loader.h"
#include "tandem/tensor.h"

namespace tandem::datasets {

// Pictures with a class each, in memory on the CPU.
struct LabelledImages {
  Tensor images{};  // uint8 [n, height, width, channels]
  Tensor labels{};  // int64 [n], 0 .. classes-1
  std::int64_t classes = 10;

  std::int64_t size() const { return labels.size(); }
  // {picture, label}, an element a picture.
  data::Dataset dataset() const { return data::Dataset::from_tensor_slices({images, labels}); }
  // The same, asked for by number (data::DataLoader).
  operator data::IndexedDataset() const {  // NOLINT: implicit
    return data::IndexedDataset::from_tensor_slices({images, labels});
  }
  // The first `count` pictures (all, when there are fewer); shares storage.
  LabelledImages take(std::int64_t count) const;
};

struct TrainTest {
  LabelledImages train{};
  LabelledImages test{};
};

// A file of the IDX format (http://yann.lecun.com/exdb/mnist), plain or gzipped (told by content),
// as a tensor on the CPU. Signed bytes and 16-bit integers become int32.
Tensor read_idx(const std::string& path);

// The records of one file of CIFAR-10's binary format: a label byte, then 3,072 bytes of red, green
// and blue planes of 32 x 32. Pictures come channels last, [n, 32, 32, 3].
LabelledImages read_cifar10(const std::string& path);

// MNIST, or a set of the same format (Fashion-MNIST), from its four files in `directory`:
// train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte, t10k-labels-idx1-ubyte,
// each with or without ".gz". Pictures are [n, 28, 28, 1].
TrainTest mnist(const std::string& directory);

// CIFAR-10 from its binary files in `directory`: data_batch_1.bin .. data_batch_5.bin, those that
// are there (at least one), and test_batch.bin.
TrainTest cifar10(const std::string& directory);

struct SyntheticDigitsOptions {
  std::int64_t train = 20'000;
  std::int64_t test = 2'000;
  std::uint64_t seed = 0;
};
// Handwriting-like digits that the program draws: strokes in several writing styles a digit, bent,
// sheared, rotated and of varying thickness and contrast, with noise. About as hard as MNIST: a
// linear classifier stays below 0.93, a small convolutional network passes 0.97. Pictures are
// [n, 28, 28, 1]. Picture i of a split depends on the seed and i alone.
TrainTest synthetic_digits(const SyntheticDigitsOptions& options = {});

}  // namespace tandem::datasets
