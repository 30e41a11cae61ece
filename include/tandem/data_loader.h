// Samplers and data loaders, after torch.utils.data: examples are asked for by number, a sampler
// says which and in what order, a loader makes batches of them.
//
//   DistributedSampler sampler(training.size(), {.num_replicas = world_size, .rank = rank});
//   DataLoader loader(training, {.batch_size = 32, .sampler = sampler, .num_workers = 1});
//   for (int epoch = 0; epoch < epochs; ++epoch) {
//     sampler.set_epoch(epoch);
//     for (const Example& batch : loader) train_step(batch[0], batch[1]);
//   }
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "tandem/data.h"

namespace tandem::data {

// A set of examples that can be asked for by number, in any order ("map-style"). A value; copies
// share the examples. Thread-safe where the function it was made from is.
class IndexedDataset {
 public:
  // An example for each index of the tensors' first axes. Errors as Dataset::from_tensor_slices.
  static IndexedDataset from_tensor_slices(const Example& tensors);
  // `get(i)` makes example i of `size`. In a loader its random numbers depend on the epoch and the
  // example's place in it; with several workers it must be thread-safe. Throws InvalidArgumentError
  // for a negative size.
  IndexedDataset(std::int64_t size, std::function<Example(std::int64_t)> get);

  std::int64_t size() const;
  // Throws OutOfRangeError.
  Example operator[](std::int64_t index) const;

  class Source;
  const std::shared_ptr<const Source>& source() const { return source_; }

 private:
  explicit IndexedDataset(std::shared_ptr<const Source> source) : source_(std::move(source)) {}
  std::shared_ptr<const Source> source_;
};

// Which examples an epoch visits, in which order. A handle: copies share their state. Thread-safe.
class Sampler {
 public:
  // The numbers of the examples of an epoch: a pure function of it.
  using IndicesFn = std::function<std::vector<std::int64_t>(std::uint64_t epoch)>;
  // `size`: how many `indices` returns in every epoch.
  Sampler(std::int64_t size, IndicesFn indices);

  std::int64_t size() const;
  // Throws InvalidArgumentError where the function returns another number than size().
  std::vector<std::int64_t> indices(std::uint64_t epoch) const;

 protected:
  struct State;
  explicit Sampler(std::shared_ptr<State> state) : state_(std::move(state)) {}
  const std::shared_ptr<State>& state() const { return state_; }

 private:
  std::shared_ptr<State> state_;
};

// 0, 1, ..., size-1.
class SequentialSampler : public Sampler {
 public:
  explicit SequentialSampler(std::int64_t size);
};

struct RandomSamplerOptions {
  bool replacement = false;
  std::int64_t num_samples = -1;        // -1: as many as there are examples
  std::optional<std::uint64_t> seed{};  // not given: from random::set_seed's, as it is now
};
// Another order each epoch. Without replacement and with more samples than examples, whole
// permutations follow one another.
class RandomSampler : public Sampler {
 public:
  explicit RandomSampler(std::int64_t size, const RandomSamplerOptions& options = {});
};

struct DistributedSamplerOptions {
  // Among how many the examples are shared out, and which of them this is.
  int num_replicas = 1;
  int rank = 0;
  bool shuffle = true;
  std::uint64_t seed = 0;  // the same for all ranks
  // Leave out the tail of the examples, so that they divide evenly; otherwise some are visited
  // twice.
  bool drop_last = false;
};
// A rank's share of `size` examples: every num_replicas-th one from `rank` on, of a permutation
// that all ranks draw alike. Each rank visits the same number, ceil(size / num_replicas); examples
// from the front fill up the last ones. With drop_last, floor(size / num_replicas). Throws
// InvalidArgumentError "Invalid rank R, rank should be in the interval [0, W-1]". Source:
// torch.utils.data.DistributedSampler.
class DistributedSampler : public Sampler {
 public:
  DistributedSampler(std::int64_t size, const DistributedSamplerOptions& options);
  // The permutation of the epochs that start from now on, whatever their own number: without it
  // every epoch has the same order.
  void set_epoch(std::uint64_t epoch);
};

struct DataLoaderOptions {
  std::int64_t batch_size = 1;
  bool shuffle = false;  // RandomSampler; not together with a sampler
  std::optional<Sampler> sampler{};
  // Threads that make examples ahead; 0: the thread that asks does. (Rows of tensors in memory are
  // gathered by one.)
  int num_workers = 0;
  bool drop_last = false;   // leave out the last batch when it is not full
  int prefetch_factor = 2;  // batches made ahead, a worker
};

// Batches of a data set in the order of a sampler: examples stacked along a new first axis. A
// value. Throws InvalidArgumentError for a batch size, a number of workers or a prefetch factor out
// of range, and for shuffle together with a sampler; iterating, for a sampler's number that is no
// example's and for examples that cannot be stacked.
class DataLoader {
 public:
  explicit DataLoader(const IndexedDataset& examples, const DataLoaderOptions& options = {});

  // Batches of an epoch.
  std::int64_t size() const { return batches_.cardinality(); }
  // A new epoch each time.
  Iterator::Cursor begin() const { return batches_.begin(); }
  std::default_sentinel_t end() const { return {}; }
  // The same batches as a pipeline, for Model::fit and strategies.
  const Dataset& dataset() const { return batches_; }

 private:
  Dataset batches_;
};

}  // namespace tandem::data
