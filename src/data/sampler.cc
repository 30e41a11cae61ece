// Samplers: the orders in which examples are visited.
#include <algorithm>
#include <atomic>
#include <numeric>

#include "core/status.h"
#include "data/splitmix.h"
#include "runtime/generator.h"
#include "tandem/data_loader.h"

namespace tandem::data {
namespace {

std::vector<std::int64_t> in_order(std::int64_t size) {
  std::vector<std::int64_t> indices(static_cast<std::size_t>(size));
  std::iota(indices.begin(), indices.end(), std::int64_t{0});
  return indices;
}

std::vector<std::int64_t> permutation(std::int64_t size, SplitMix& random) {
  std::vector<std::int64_t> indices = in_order(size);
  for (std::size_t left = indices.size(); left > 1; --left)
    std::swap(indices[left - 1], indices[random.below(left)]);
  return indices;
}

std::int64_t checked_size(const char* sampler, std::int64_t size) {
  if (size < 0)
    fail<InvalidArgumentError>("[{}] expected a number of examples of at least 0, got {}", sampler,
                               size);
  return size;
}

}  // namespace

struct Sampler::State {
  std::int64_t size;
  IndicesFn indices;
  std::atomic<std::uint64_t> epoch{0};  // DistributedSampler's
};

Sampler::Sampler(std::int64_t size, IndicesFn indices) : state_(std::make_shared<State>()) {
  if (!indices) fail<InvalidArgumentError>("[Sampler] expected a function, got an empty one");
  state_->size = checked_size("Sampler", size);
  state_->indices = std::move(indices);
}

const Sampler& Sampler::at(const Sampler* sampler) {
  if (!sampler)
    fail<InvalidArgumentError>("[Sampler] expected the address of a sampler, got a null pointer");
  return *sampler;
}

std::int64_t Sampler::size() const { return state_->size; }

std::vector<std::int64_t> Sampler::indices(std::uint64_t epoch) const {
  std::vector<std::int64_t> indices = state_->indices(epoch);
  if (static_cast<std::int64_t>(indices.size()) != state_->size)
    fail<InvalidArgumentError>("[Sampler] expected {} indices for epoch {}, got {}", state_->size,
                               epoch, indices.size());
  return indices;
}

SequentialSampler::SequentialSampler(std::int64_t size)
    : Sampler(checked_size("SequentialSampler", size),
              [size](std::uint64_t) { return in_order(size); }) {}

namespace {

Sampler random_sampler(std::int64_t size, const RandomSamplerOptions& options) {
  checked_size("RandomSampler", size);
  if (options.num_samples < -1)
    fail<InvalidArgumentError>("[RandomSampler] expected num_samples of at least 0, got {}",
                               options.num_samples);
  const std::int64_t samples = options.num_samples < 0 ? size : options.num_samples;
  if (size == 0 && samples > 0)
    fail<InvalidArgumentError>("[RandomSampler] expected at least 1 example for {} samples, got 0",
                               samples);
  const std::uint64_t seed = options.seed ? *options.seed : Generator::process().state().seed;
  return Sampler(
      samples, [size, samples, seed, replacement = options.replacement](std::uint64_t epoch) {
        SplitMix random(mix(seed, epoch));
        std::vector<std::int64_t> indices;
        indices.reserve(static_cast<std::size_t>(samples));
        while (static_cast<std::int64_t>(indices.size()) < samples) {
          if (replacement) {
            indices.push_back(
                static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(size))));
            continue;
          }
          const std::vector<std::int64_t> more = permutation(size, random);
          const auto wanted = std::min(size, samples - static_cast<std::int64_t>(indices.size()));
          indices.insert(indices.end(), more.begin(), more.begin() + wanted);
        }
        return indices;
      });
}

}  // namespace

RandomSampler::RandomSampler(std::int64_t size, const RandomSamplerOptions& options)
    : Sampler(random_sampler(size, options)) {}

namespace {

std::int64_t share(std::int64_t size, const DistributedSamplerOptions& options) {
  const std::int64_t replicas = options.num_replicas;
  return options.drop_last ? size / replicas : (size + replicas - 1) / replicas;
}

}  // namespace

DistributedSampler::DistributedSampler(std::int64_t size, const DistributedSamplerOptions& options)
    : Sampler(std::make_shared<State>()) {
  checked_size("DistributedSampler", size);
  if (options.num_replicas < 1)
    fail<InvalidArgumentError>("[DistributedSampler] expected num_replicas of at least 1, got {}",
                               options.num_replicas);
  if (options.rank < 0 || options.rank >= options.num_replicas)
    fail<InvalidArgumentError>("Invalid rank {}, rank should be in the interval [0, {}]",
                               options.rank, options.num_replicas - 1);
  const std::int64_t mine = share(size, options);
  state()->size = mine;
  // Captures the epoch only: the state owns this function.
  state()->indices = [size, mine, options, epoch = &state()->epoch](std::uint64_t) {
    SplitMix random(mix(options.seed, epoch->load(std::memory_order_relaxed)));
    const std::vector<std::int64_t> all =
        options.shuffle ? permutation(size, random) : in_order(size);
    std::vector<std::int64_t> indices(static_cast<std::size_t>(mine));
    for (std::size_t i = 0; i < indices.size(); ++i)
      indices[i] = all[(static_cast<std::size_t>(options.rank) +
                        i * static_cast<std::size_t>(options.num_replicas)) %
                       all.size()];
    return indices;
  };
}

void DistributedSampler::set_epoch(std::uint64_t epoch) {
  state()->epoch.store(epoch, std::memory_order_relaxed);
}

}  // namespace tandem::data
