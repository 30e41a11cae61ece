// The common part of the layers that change images.
#pragma once

#include <functional>
#include <optional>
#include <utility>

#include "nn/layer_base.h"
#include "ops/math/of_size.h"
#include "tandem/array.h"
#include "tandem/math.h"
#include "tandem/random.h"

namespace tandem {

// A layer of one image or a batch of images, which it casts to the dtype that it computes in.
class ImageLayer final : public UnaryLayer {
 public:
  // Changes images [batch, height, width, channels].
  using Change = std::function<Tensor(const Tensor& images)>;
  // The changes in training and outside of it; empty: none.
  struct Changes {
    Change in_training, outside;
  };
  // The heights and widths of results; empty: those of the images.
  using Size = std::optional<std::pair<std::int64_t, std::int64_t>>;
  template <class Options>
  ImageLayer(const char* kind, const Options& options, Changes changes, Size size = {},
             std::int64_t channels = -1)
      : UnaryLayer(kind, options), changes_(std::move(changes)), size_(size), channels_(channels) {}

 private:
  Shape infer(const Shape& x) const override {
    if (x.rank() != 3 && x.rank() != 4)
      reject("images of shape (height, width, channels) or (batch, height, width, channels)", x);
    if (channels_ >= 0 && !may_agree(x.word(x.rank() - 1), channels_))
      reject(fmt::format("images of {} channels", channels_), x);
    if (!size_) return x;
    Shape result = x;
    result.set(x.rank() - 3, size_->first);
    result.set(x.rank() - 2, size_->second);
    return result;
  }

  Tensor run(const Tensor& x, const CallOptions& options) override {
    const Tensor images =
        (channels_ < 0 ? x : of_size(label(), "images of shape", x, -1, channels_))
            .to(dtype_policy().compute_dtype());
    const Change& change = options.training ? changes_.in_training : changes_.outside;
    if (!change) return images;
    const Tensor changed = change(x.rank() == 4 ? images : expand_dims(images, 0));
    return (x.rank() == 4 ? changed : squeeze(changed, {0})).to(images.dtype());
  }
  // The declared shape has a batch axis; a call may be one image.
  void make_weights(const Shape&) override {}

  Changes changes_;
  Size size_;
  std::int64_t channels_;
};

// Random float32 numbers [batch, 1, 1, 1] for images [batch, height, width, channels].
inline Tensor for_each_image(const Tensor& images, double low, double high,
                             const random::Options& options) {
  return random::uniform({images.dim(0), 1, 1, 1}, low, high, options);
}

// The size of an axis of images. Throws InvalidArgumentError if it is unknown.
inline std::int64_t known_axis(const char* kind, const Tensor& images, int axis) {
  const std::int64_t size = images.size_word(axis);
  if (size < 0)
    fail<InvalidArgumentError>("[{}] expected images of known height, width and channels, got {}",
                               kind, images.shape().to_string());
  return size;
}

}  // namespace tandem
