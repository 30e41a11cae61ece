// The synthetic digits data set, which needs no files.
#include "core/parallel.h"
#include "core/status.h"
#include "data/digit_painter.h"
#include "data/stream.h"
#include "tandem/datasets.h"
#include "tensor/tensor_impl.h"

namespace tandem::datasets {
namespace {

LabelledImages paint_digits(std::int64_t count, std::uint64_t key) {
  const data::PipelineScope scope;
  Device& host = DeviceManager::get().host();
  LabelledImages set{
      .images = make_tensor(host, {count, data::kDigitSide, data::kDigitSide, 1}, uint8),
      .labels = make_tensor(host, {count}, int64)};
  auto* pixels = reinterpret_cast<std::uint8_t*>(impl_of(set.images).data());
  auto* labels = reinterpret_cast<std::int64_t*>(impl_of(set.labels).data());
  parallel_for(count, 64, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      data::SplitMix random(data::mix(key, static_cast<std::uint64_t>(i)));
      labels[i] = static_cast<std::int64_t>(random.below(10));
      data::paint_digit(static_cast<int>(labels[i]), random,
                        pixels + i * data::kDigitSide * data::kDigitSide);
    }
  });
  return set;
}

}  // namespace

TrainTest synthetic_digits(const SyntheticDigitsOptions& options) {
  if (options.train < 0 || options.test < 0)
    fail<InvalidArgumentError>("[synthetic_digits] expected counts of at least 0, got {} and {}",
                               options.train, options.test);
  return {.train = paint_digits(options.train, data::mix(options.seed, 0)),
          .test = paint_digits(options.test, data::mix(options.seed, 1))};
}

}  // namespace tandem::datasets
