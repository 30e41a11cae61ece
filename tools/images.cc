#include "images.h"

#include <algorithm>

#include "tandem/array.h"
#include "tandem/errors.h"
#include "tandem/math.h"
#include "tandem/random.h"

namespace tandem::tools {
namespace {

using data::Example;

Example scaled(const Example& batch) { return {cast(batch[0], float32) / 255.0, batch[1]}; }

// The augmentation of He et al. 2016 for CIFAR-10. Random numbers depend on the image's position in
// the epoch.
Example augmented(const Example& example) {
  constexpr std::int64_t kShift = 4;
  const Tensor& image = example[0];
  const std::vector<std::int32_t> offsets =
      concat({random::uniform_int({2}, 0, 2 * kShift + 1), random::uniform_int({1}, 0, 2)}, 0)
          .to_vector<std::int32_t>();
  const Tensor padded = pad(image, {{kShift, kShift}, {kShift, kShift}, {0, 0}});
  const Tensor shifted = slice(padded, {offsets[0], offsets[1], 0}, image.shape().dims());
  return {offsets[2] == 0 ? shifted : reverse(shifted, {1}), example[1]};
}

std::int64_t at_most(std::int64_t count, const std::optional<std::int64_t>& limit) {
  return limit ? std::min(count, *limit) : count;
}

}  // namespace

datasets::TrainTest load_images(const std::string& source, std::optional<std::int64_t> limit,
                                std::uint64_t seed) {
  const std::size_t colon = source.find(':');
  const std::string name = source.substr(0, colon);
  const std::string directory = colon == std::string::npos ? "" : source.substr(colon + 1);
  if (source == "synthetic") {
    const datasets::SyntheticDigitsOptions defaults;
    return datasets::synthetic_digits({.train = at_most(defaults.train, limit), .seed = seed});
  }
  if ((name != "mnist" && name != "cifar10") || directory.empty())
    throw InvalidArgumentError(
        "[train] expected --data synthetic, mnist:DIRECTORY or cifar10:DIRECTORY, got '" + source +
        "'");
  datasets::TrainTest images =
      name == "mnist" ? datasets::mnist(directory) : datasets::cifar10(directory);
  if (limit) images.train = images.train.take(*limit);
  return images;
}

ImageSpec image_spec(const std::string& source, const std::string& command) {
  const std::string name = source.substr(0, source.find(':'));
  if (name == "synthetic" || name == "mnist") return {.image = {28, 28, 1}};
  if (name == "cifar10") return {.image = {32, 32, 3}};
  throw InvalidArgumentError("[" + command +
                             "] expected --data synthetic, mnist or cifar10, got '" + source + "'");
}

data::Dataset training_batches(const datasets::LabelledImages& images,
                               const BatchesOptions& options) {
  data::Dataset examples = images.dataset().shuffle(images.size(), {.seed = options.seed});
  if (options.augment) examples = examples.map(augmented);
  return examples.batch(options.batch).map(scaled).prefetch(2);
}

data::Dataset test_batches(const datasets::LabelledImages& images, std::int64_t batch) {
  return images.dataset().batch(batch).map(scaled).prefetch(2);
}

}  // namespace tandem::tools
