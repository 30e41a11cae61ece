/// @file
/// Samplers and data loaders. As torch.utils.data: examples are accessed by index, a sampler
/// chooses the indices and their order, and a loader makes batches.
/// @code
/// DistributedSampler sampler(training.size(), {.num_replicas = world_size, .rank = rank});
/// DataLoader loader(training, {.batch_size = 32, .sampler = sampler, .num_workers = 1});
/// for (int epoch = 0; epoch < epochs; ++epoch) {
///   sampler.set_epoch(epoch);
///   for (const Example& batch : loader) train_step(batch[0], batch[1]);
/// }
/// @endcode
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "tandem/data.h"

namespace tandem::data {

/// Examples with random access by index ("map-style", as torch.utils.data.Dataset). A value; copies
/// share the examples. Thread-safe if the function it was made from is.
class IndexedDataset {
 public:
  /// Examples that are slices along the tensors' first axes. Throws as
  /// Dataset::from_tensor_slices().
  static IndexedDataset from_tensor_slices(const Example& tensors);
  /// Examples made by `get(i)`, for i from 0 to `size` - 1. In a loader its random numbers depend
  /// on the epoch and the example's position in it. With several workers `get` must be thread-safe.
  /// Throws InvalidArgumentError for a negative size.
  IndexedDataset(std::int64_t size, std::function<Example(std::int64_t)> get);

  std::int64_t size() const;  ///< number of examples
  /// Example `index`. Throws OutOfRangeError.
  Example operator[](std::int64_t index) const;

  /// For Tandem's own code.
  class Source;
  /// For Tandem's own code.
  const std::shared_ptr<const Source>& source() const { return source_; }

 private:
  explicit IndexedDataset(std::shared_ptr<const Source> source) : source_(std::move(source)) {}
  std::shared_ptr<const Source> source_;
};

/// The examples {x[i], y[i], ...} of tensors: IndexedDataset::from_tensor_slices() as a type. As
/// torch.utils.data.TensorDataset.
class TensorDataset : public IndexedDataset {
 public:
  /// Examples that are slices along the tensors' first axes.
  template <std::convertible_to<Tensor>... T>
  requires(sizeof...(T) > 0) explicit TensorDataset(const T&... tensors)
      : IndexedDataset(from_tensor_slices(Example{static_cast<Tensor>(tensors)...})) {}
};

/// Chooses the examples of an epoch and their order. As torch.utils.data.Sampler. A handle: copies
/// share their state. Thread-safe.
class Sampler {
 public:
  /// Returns the indices of an epoch's examples; must be a pure function of `epoch`.
  using IndicesFn = std::function<std::vector<std::int64_t>(std::uint64_t epoch)>;
  /// A sampler whose function returns `size` indices in each epoch.
  Sampler(std::int64_t size, IndicesFn indices);

  std::int64_t size() const;  ///< number of indices per epoch
  /// The indices of an epoch. Throws InvalidArgumentError if their number is not size().
  std::vector<std::int64_t> indices(std::uint64_t epoch) const;

 protected:
  /// For Tandem's own code.
  struct State;
  /// For Tandem's own code.
  explicit Sampler(std::shared_ptr<State> state) : state_(std::move(state)) {}
  const std::shared_ptr<State>& state() const { return state_; }  ///< for Tandem's own code

 private:
  std::shared_ptr<State> state_;
};

/// The indices 0, 1, ..., size-1. As torch.utils.data.SequentialSampler.
class SequentialSampler : public Sampler {
 public:
  /// A sampler of `size` examples.
  explicit SequentialSampler(std::int64_t size);
};

/// Options of RandomSampler.
struct RandomSamplerOptions {
  bool replacement = false;       ///< sample with replacement
  std::int64_t num_samples = -1;  ///< number of indices per epoch; -1: one per example
  /// Default: derived from random::set_seed()'s seed at construction.
  std::optional<std::uint64_t> seed{};
};
/// A random order, new in each epoch. Without replacement and with more samples than examples,
/// several permutations follow one another. As torch.utils.data.RandomSampler.
class RandomSampler : public Sampler {
 public:
  /// A sampler of `size` examples.
  explicit RandomSampler(std::int64_t size, const RandomSamplerOptions& options = {});
};

/// Options of DistributedSampler.
struct DistributedSamplerOptions {
  int num_replicas = 1;    ///< number of ranks that share the examples
  int rank = 0;            ///< rank of this process
  bool shuffle = true;     ///< a random order, new after each set_epoch(); false: in order
  std::uint64_t seed = 0;  ///< must be the same on all ranks
  /// Omits the last examples if their number does not divide evenly. If false, some examples are
  /// visited twice.
  bool drop_last = false;
};
/// One rank's part of `size` examples: every num_replicas-th example, starting at `rank`, of a
/// permutation that is the same on all ranks. As torch.utils.data.DistributedSampler.
///
/// Every rank visits ceil(size / num_replicas) examples; the first examples are repeated to fill
/// the last ranks. With drop_last it is floor(size / num_replicas). Throws InvalidArgumentError
/// "Invalid rank R, rank should be in the interval [0, W-1]".
class DistributedSampler : public Sampler {
 public:
  /// A sampler of `size` examples.
  DistributedSampler(std::int64_t size, const DistributedSamplerOptions& options);
  /// Selects the permutation of the epochs that start from now on. Without this call every epoch
  /// has the same order.
  void set_epoch(std::uint64_t epoch);
};

/// Options of DataLoader. As the arguments of torch.utils.data.DataLoader.
struct DataLoaderOptions {
  std::int64_t batch_size = 1;       ///< examples per batch
  bool shuffle = false;              ///< use a RandomSampler; excludes `sampler`
  std::optional<Sampler> sampler{};  ///< default: in order
  /// Number of threads that load examples ahead; 0: the calling thread loads them. (Rows of tensors
  /// in memory are always gathered by one thread.)
  int num_workers = 0;
  bool drop_last = false;   ///< omit the last batch if it is not full
  int prefetch_factor = 2;  ///< batches loaded ahead per worker
};

/// Batches of examples in a sampler's order, stacked along a new first axis. A value. As
/// torch.utils.data.DataLoader.
///
/// Throws InvalidArgumentError for a batch size, number of workers or prefetch factor out of range,
/// and for shuffle together with a sampler. Iteration throws for an index out of range and for
/// examples that cannot be stacked.
class DataLoader {
 public:
  /// A loader of these examples.
  explicit DataLoader(const IndexedDataset& examples, const DataLoaderOptions& options = {});

  /// Number of batches per epoch.
  std::int64_t size() const { return batches_.cardinality(); }
  /// Starts a new epoch.
  Iterator::Cursor begin() const { return batches_.begin(); }
  /// The end of the iteration.
  std::default_sentinel_t end() const { return {}; }
  /// The same batches as a Dataset, for Model::fit() and strategies.
  const Dataset& dataset() const { return batches_; }

 private:
  Dataset batches_;
};

}  // namespace tandem::data
