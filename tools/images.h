// The datasets of `tandem train`, as batches for training and testing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tandem/datasets.h"

namespace tandem::tools {

// "synthetic", "mnist:DIRECTORY", "cifar10:DIRECTORY"; the first `limit` training images, or all.
// Throws InvalidArgumentError for another, and what the readers throw.
datasets::TrainTest load_images(const std::string& source, std::optional<std::int64_t> limit,
                                std::uint64_t seed);

struct ImageSpec {
  Shape image;
  std::int64_t classes = 10;
};
// The image shape and number of classes of a dataset, without reading it; DIRECTORY may be omitted.
// `command` goes in messages ("train").
ImageSpec image_spec(const std::string& source, const std::string& command);

struct BatchesOptions {
  std::int64_t batch = 128;
  std::uint64_t seed = 0;
  bool augment = false;
};
// Batches of (images scaled to [0, 1], labels); reshuffled each epoch and, with `augment`,
// shifted by up to four pixels and mirrored at random.
data::Dataset training_batches(const datasets::LabelledImages& images,
                               const BatchesOptions& options);
data::Dataset test_batches(const datasets::LabelledImages& images, std::int64_t batch);

}  // namespace tandem::tools
