// The data sets that `tandem train` knows, as batches for training and for testing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tandem/datasets.h"

namespace tandem::tools {

// "synthetic", "mnist:DIRECTORY", "cifar10:DIRECTORY"; the first `limit` training pictures, or all.
// Throws InvalidArgumentError for another, and what the readers throw.
datasets::TrainTest load_pictures(const std::string& source, std::optional<std::int64_t> limit,
                                  std::uint64_t seed);

struct PictureShape {
  Shape picture;
  std::int64_t classes = 10;
};
// What the pictures of a data set will be like, without reading it; a DIRECTORY may be left out.
// `command` goes in messages ("train").
PictureShape picture_shape(const std::string& source, const std::string& command);

struct BatchesOptions {
  std::int64_t batch = 128;
  std::uint64_t seed = 0;
  bool augment = false;
};
// Batches of (pictures scaled to [0, 1], labels); shuffled anew each epoch and, with `augment`,
// shifted by up to four pixels and mirrored at random.
data::Dataset training_batches(const datasets::LabelledImages& pictures,
                               const BatchesOptions& options);
data::Dataset test_batches(const datasets::LabelledImages& pictures, std::int64_t batch);

}  // namespace tandem::tools
