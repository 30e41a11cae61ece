/// @file
/// Samplers and data loaders. As torch.utils.data: examples are accessed by index, a sampler
/// chooses the indices and their order, and a loader makes batches.
/// @code
/// DistributedSampler sampler(training, {.num_replicas = world_size, .rank = rank});
/// DataLoader loader(training, {.batch_size = 32, .sampler = sampler, .num_workers = 1});
/// for (int epoch = 0; epoch < epochs; ++epoch) {
///   sampler.set_epoch(epoch);
///   for (const Example& batch : loader) train_step(batch[0], batch[1]);
/// }
/// @endcode
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "tandem/data.h"

namespace tandem::data {

/// Base class of your own datasets with random access, accepted wherever an IndexedDataset is: by
/// value, which copies the object, or as a std::shared_ptr. As torch.utils.data.Dataset, whose
/// __getitem__ is get() and whose __len__ is size().
/// @code
/// class Squares : public td::data::MapDataset {
///  public:
///   td::data::Example get(std::size_t index) const override {
///     const auto x = static_cast<float>(index);
///     return {td::constant(x), td::constant(x * x)};
///   }
///   std::size_t size() const override { return 100; }
/// };
/// td::data::DataLoader loader(Squares(), {.batch_size = 10, .shuffle = true});
/// @endcode
class MapDataset {
 public:
  virtual ~MapDataset() = default;
  /// @{
  /// Example `index`, counted from 0. Your class has one of these. As the function of
  /// IndexedDataset: with several workers it must be thread-safe. The default throws
  /// UnimplementedError.
  virtual Example get(std::size_t index);
  virtual Example get(std::size_t index) const;
  /// @}
  virtual std::size_t size() const = 0;  ///< number of examples
};

/// An example with names for its first two components: a batch of a loader, or an example of a
/// dataset of libtorch's kind. As torch::data::Example.
class LoadedExample : public Example {
 public:
  LoadedExample() = default;
  /// These components.
  explicit LoadedExample(Example example) : Example(std::move(example)) {
    if (size() > 0) data = (*this)[0];
    if (size() > 1) target = (*this)[1];
  }
  /// An example of these two components.
  LoadedExample(const Tensor& x, const Tensor& y) : LoadedExample(Example{x, y}) {}
  Tensor data;    ///< component 0
  Tensor target;  ///< component 1; undefined if there is none
};

/// For Tandem's own code: the components of an example of a dataset of libtorch's kind.
inline const Example& components_of(const Example& example) { return example; }
/// The same, where `data` and `target` may have been assigned.
inline Example components_of(const LoadedExample& example) {
  Example components;
  for (const Tensor& named : {example.data, example.target})
    if (named.defined()) components.push_back(named);
  for (std::size_t i = 2; i < example.size(); ++i) components.push_back(example[i]);
  return components;
}

/// Datasets of a class of your own, with libtorch's signatures. As torch::data::datasets.
namespace datasets {

/// For Tandem's own code: what IndexedDataset takes.
class DatasetBase {
 public:
  virtual ~DatasetBase() = default;
  /// The number of examples. As torch::data::datasets::Dataset::size.
  virtual std::optional<std::size_t> size() const = 0;
};
class MappedDataset;

/// Base class of a dataset with get() and size(). As torch::data::datasets::Dataset; data::Dataset
/// is a pipeline, as in TensorFlow.
/// @code
/// struct Squares : td::data::datasets::Dataset<Squares> {
///   td::data::Example get(std::size_t index) override { ... }
///   std::optional<std::size_t> size() const override { return 100; }
/// };
/// auto loader = td::data::make_data_loader(Squares(), {.batch_size = 10});
/// for (auto& batch : *loader) step(batch.data, batch.target);
/// @endcode
/// SingleExample is the type that get() returns: Example or LoadedExample.
template <class Self, class SingleExample = Example>
class Dataset : public DatasetBase {
 public:
  using ExampleType = SingleExample;  ///< as in libtorch
  /// Example `index`, counted from 0. With several workers it must be thread-safe.
  virtual SingleExample get(std::size_t index) = 0;
  /// @{
  /// The examples of this dataset, or of a copy of it, after transforms::Normalize, or a function
  /// of an example. transforms::Stack changes nothing: loaders stack examples. As
  /// torch::data::datasets::Dataset::map.
  template <class Transform>
  MappedDataset map(const Transform& transform) const&;
  template <class Transform>
  MappedDataset map(const Transform& transform) &&;
  /// @}
};

}  // namespace datasets

namespace detail {
// The size of a dataset. Throws InvalidArgumentError if it has none.
std::int64_t size_of_dataset(const datasets::DatasetBase& dataset);
}  // namespace detail

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
  /// @{
  /// The examples of a dataset of your own, or of a copy of it.
  template <std::derived_from<MapDataset> D>
  IndexedDataset(std::shared_ptr<D> dataset)  // NOLINT: implicit
      : IndexedDataset(dataset ? static_cast<std::int64_t>(dataset->size()) : 0,
                       [dataset](std::int64_t index) -> Example {
                         return dataset->get(static_cast<std::size_t>(index));
                       }) {}
  template <std::derived_from<MapDataset> D>
  IndexedDataset(const D& dataset)  // NOLINT: implicit
      : IndexedDataset(std::make_shared<D>(dataset)) {}
  /// @}

  /// @{
  /// The examples of a dataset of libtorch's kind, or of a copy of it.
  template <std::derived_from<datasets::DatasetBase> D>
  IndexedDataset(std::shared_ptr<D> dataset)  // NOLINT: implicit
      : IndexedDataset(dataset ? detail::size_of_dataset(*dataset) : 0,
                       [dataset](std::int64_t index) -> Example {
                         return components_of(dataset->get(static_cast<std::size_t>(index)));
                       }) {}
  template <std::derived_from<datasets::DatasetBase> D>
  IndexedDataset(const D& dataset)  // NOLINT: implicit
      : IndexedDataset(std::make_shared<D>(dataset)) {}
  /// @}

  std::int64_t size() const;  ///< number of examples
  /// Example `index`. Throws OutOfRangeError.
  Example operator[](std::int64_t index) const;
  Example get(std::int64_t index) const { return (*this)[index]; }  ///< as operator[]

  /// For Tandem's own code.
  class Source;
  /// For Tandem's own code.
  const std::shared_ptr<const Source>& source() const { return source_; }

 private:
  explicit IndexedDataset(std::shared_ptr<const Source> source) : source_(std::move(source)) {}
  std::shared_ptr<const Source> source_;
};

/// Transforms of datasets of libtorch's kind. As torch::data::transforms.
namespace transforms {

/// Stands for the stacking of examples, which loaders do. As torch::data::transforms::Stack.
template <class Of = LoadedExample>
struct Stack {};
/// Subtracts a mean from the data of each example and divides it by a standard deviation: one of
/// each, or one for each position of the first axis, the channels. Throws InvalidArgumentError for
/// data with another number of channels, or that is not floating-point. As
/// torch::data::transforms::Normalize.
class NormalizeData {
 public:
  /// With one mean and deviation.
  NormalizeData(double mean, double stddev)
      : NormalizeData(std::vector<double>{mean}, std::vector<double>{stddev}) {}
  /// With these of each channel. Throws InvalidArgumentError for none and for different numbers.
  NormalizeData(std::vector<double> mean, std::vector<double> stddev);
  LoadedExample operator()(LoadedExample example) const;  ///< the example with other data

 private:
  std::vector<double> mean_, stddev_;
};
/// NormalizeData with libtorch's parameter.
template <class Of = Tensor>
class Normalize : public NormalizeData {
 public:
  using NormalizeData::NormalizeData;  ///< as NormalizeData
};
/// A function of an example. As torch::data::transforms::Lambda.
template <class In = LoadedExample, class Out = In>
class Lambda {
 public:
  /// Applies this function.
  explicit Lambda(std::function<Out(In)> function) : function_(std::move(function)) {}
  /// The result of the function.
  Out operator()(In example) const { return function_(std::move(example)); }

 private:
  std::function<Out(In)> function_;
};

}  // namespace transforms

namespace datasets {

/// The examples of another dataset after a transform: the result of Dataset::map(). As
/// torch::data::datasets::MapDataset.
class MappedDataset : public DatasetBase {
 public:
  /// These examples.
  explicit MappedDataset(IndexedDataset examples) : examples_(std::move(examples)) {}
  /// Example `index`. Throws OutOfRangeError.
  LoadedExample get(std::size_t index) const {
    return LoadedExample(examples_[static_cast<std::int64_t>(index)]);
  }
  std::optional<std::size_t> size() const override {
    return static_cast<std::size_t>(examples_.size());
  }
  /// As Dataset::map().
  template <class Transform>
  MappedDataset map(const Transform& transform) const {
    if constexpr (requires { transform(LoadedExample()); })
      return MappedDataset(IndexedDataset(
          examples_.size(), [examples = examples_, transform](std::int64_t index) -> Example {
            return components_of(transform(LoadedExample(examples[index])));
          }));
    else
      return stacked(transform);
  }

 private:
  template <class Of>
  MappedDataset stacked(const transforms::Stack<Of>&) const {
    return *this;
  }

  IndexedDataset examples_;
};

/// @cond
template <class Self, class SingleExample>
template <class Transform>
MappedDataset Dataset<Self, SingleExample>::map(const Transform& transform) const& {
  return MappedDataset(IndexedDataset(static_cast<const Self&>(*this))).map(transform);
}
template <class Self, class SingleExample>
template <class Transform>
MappedDataset Dataset<Self, SingleExample>::map(const Transform& transform) && {
  return MappedDataset(IndexedDataset(std::make_shared<Self>(static_cast<Self&&>(*this))))
      .map(transform);
}
/// @endcond

/// The images of MNIST, or of a dataset in the same format: data are float32 [1, 28, 28] in [0, 1],
/// targets int64. Reads the files as tandem::datasets::mnist(), which gives channels-last images.
/// As torch::data::datasets::MNIST.
class MNIST : public Dataset<MNIST, LoadedExample> {
 public:
  /// The part of the images.
  enum class Mode {
    kTrain,  ///< those for training
    kTest,   ///< those for tests
  };
  /// Reads them from the files in `root`.
  explicit MNIST(const std::string& root, Mode mode = Mode::kTrain);
  LoadedExample get(std::size_t index) override;
  std::optional<std::size_t> size() const override;
  bool is_train() const { return mode_ == Mode::kTrain; }  ///< whether they are for training
  const Tensor& images() const { return images_; }         ///< float32 [n, 1, 28, 28]
  const Tensor& targets() const { return targets_; }       ///< int64 [n]

 private:
  Mode mode_;
  Tensor images_, targets_;
};

}  // namespace datasets

/// The examples {x[i], y[i], ...} of tensors: IndexedDataset::from_tensor_slices() as a type. As
/// torch.utils.data.TensorDataset.
class TensorDataset : public IndexedDataset {
 public:
  /// Examples that are slices along the tensors' first axes.
  template <std::convertible_to<Tensor>... T>
  requires(sizeof...(T) > 0) explicit TensorDataset(const T&... tensors)
      : IndexedDataset(from_tensor_slices(Example{static_cast<Tensor>(tensors)...})) {}
  /// The same of a list in braces.
  TensorDataset(std::initializer_list<Tensor> tensors)
      : IndexedDataset(from_tensor_slices(Example(tensors))) {}
};

}  // namespace tandem::data

namespace tandem::detail {

// The number of examples of a dataset with random access, which is not copied.
template <std::convertible_to<data::IndexedDataset> D>
std::int64_t number_of_examples(const D& dataset) {
  if constexpr (requires { static_cast<std::int64_t>(dataset.size()); })
    return static_cast<std::int64_t>(dataset.size());
  else
    return data::IndexedDataset(dataset).size();
}

}  // namespace tandem::detail

namespace tandem::data {

/// Chooses the examples of an epoch and their order. As torch.utils.data.Sampler. A handle: copies
/// share their state. Thread-safe.
class Sampler {
 public:
  /// Returns the indices of an epoch's examples; must be a pure function of `epoch`.
  using IndicesFn = std::function<std::vector<std::int64_t>(std::uint64_t epoch)>;
  /// A sampler whose function returns `size` indices in each epoch.
  Sampler(std::int64_t size, IndicesFn indices);
  /// @{
  /// The sampler at this address. Throws InvalidArgumentError for a null pointer.
  template <std::derived_from<Sampler> S>
  Sampler(const S* sampler) : Sampler(at(sampler)) {}  // NOLINT: implicit
  template <std::derived_from<Sampler> S>
  Sampler(const std::shared_ptr<S>& sampler) : Sampler(at(sampler.get())) {}  // NOLINT: implicit
  /// @}

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
  static const Sampler& at(const Sampler* sampler);

  std::shared_ptr<State> state_;
};

/// The indices 0, 1, ..., size-1. As torch.utils.data.SequentialSampler.
class SequentialSampler : public Sampler {
 public:
  /// A sampler of `size` examples.
  explicit SequentialSampler(std::int64_t size);
  /// A sampler of this dataset's examples.
  template <std::convertible_to<IndexedDataset> D>
  explicit SequentialSampler(const D& dataset)
      : SequentialSampler(tandem::detail::number_of_examples(dataset)) {}
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
  /// A sampler of this dataset's examples.
  template <std::convertible_to<IndexedDataset> D>
  explicit RandomSampler(const D& dataset, const RandomSamplerOptions& options = {})
      : RandomSampler(tandem::detail::number_of_examples(dataset), options) {}
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
  /// The same with the first options as arguments.
  DistributedSampler(std::int64_t size, int num_replicas, int rank)
      : DistributedSampler(size, {.num_replicas = num_replicas, .rank = rank}) {}
  /// A sampler of this dataset's examples.
  template <std::convertible_to<IndexedDataset> D>
  DistributedSampler(const D& dataset, const DistributedSamplerOptions& options)
      : DistributedSampler(tandem::detail::number_of_examples(dataset), options) {}
  /// The same with the first options as arguments.
  template <std::convertible_to<IndexedDataset> D>
  DistributedSampler(const D& dataset, int num_replicas, int rank)
      : DistributedSampler(tandem::detail::number_of_examples(dataset), num_replicas, rank) {}
  /// Selects the permutation of the epochs that start from now on. Without this call every epoch
  /// has the same order.
  void set_epoch(std::uint64_t epoch);
};

/// Options of DataLoader in braces. As the arguments of torch.utils.data.DataLoader.
struct DataLoaderArguments {
  std::int64_t batch_size = 1;       ///< examples per batch
  bool shuffle = false;              ///< use a RandomSampler; excludes `sampler`
  std::optional<Sampler> sampler{};  ///< default: in order
  /// Number of threads that load examples ahead; 0: the calling thread loads them. (Rows of tensors
  /// in memory are always gathered by one thread.)
  int num_workers = 0;
  bool drop_last = false;   ///< omit the last batch if it is not full
  int prefetch_factor = 2;  ///< batches loaded ahead per worker
};
/// The arguments of DataLoader, set one after another: `DataLoaderOptions(64).workers(2)`. As
/// torch::data::DataLoaderOptions.
class DataLoaderOptions {
 public:
  /// With batches of this size.
  explicit DataLoaderOptions(std::int64_t batch_size = 1) { arguments_.batch_size = batch_size; }
  /// @{
  /// Sets the member of DataLoaderArguments; workers() sets num_workers.
  DataLoaderOptions& batch_size(std::int64_t value) {
    arguments_.batch_size = value;
    return *this;
  }
  DataLoaderOptions& workers(int value) {
    arguments_.num_workers = value;
    return *this;
  }
  DataLoaderOptions& drop_last(bool value) {
    arguments_.drop_last = value;
    return *this;
  }
  /// @}
  /// Changes nothing: batches come in the order of the sampler.
  DataLoaderOptions& enforce_ordering(bool) { return *this; }
  const DataLoaderArguments& arguments() const { return arguments_; }  ///< all of them

 private:
  DataLoaderArguments arguments_;
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
  explicit DataLoader(const IndexedDataset& examples, const DataLoaderArguments& options = {});

  /// Number of batches per epoch.
  std::int64_t size() const { return batches_.cardinality(); }
  /// An input iterator over the batches of an epoch.
  class Cursor {
   public:
    using value_type = LoadedExample;        ///< a batch
    using difference_type = std::ptrdiff_t;  ///< difference
    Cursor() = default;                      ///< at no batch
    /// At the batch of this position.
    explicit Cursor(Iterator::Cursor batch) : batch_(std::move(batch)) { load(); }
    LoadedExample& operator*() const { return current_; }    ///< the batch
    LoadedExample* operator->() const { return &current_; }  ///< the batch
    /// @{
    /// The next batch.
    Cursor& operator++() {
      ++batch_;
      load();
      return *this;
    }
    void operator++(int) { ++*this; }
    /// @}
    /// Whether there is no batch.
    friend bool operator==(const Cursor& cursor, std::default_sentinel_t end) {
      return cursor.batch_ == end;
    }

   private:
    void load() {
      if (batch_ != std::default_sentinel) current_ = LoadedExample(*batch_);
    }
    Iterator::Cursor batch_;
    mutable LoadedExample current_;
  };
  /// Starts a new epoch.
  Cursor begin() const { return Cursor(batches_.begin()); }
  /// The end of the iteration.
  std::default_sentinel_t end() const { return {}; }
  /// The same batches as a Dataset, for Model::fit() and strategies.
  const Dataset& dataset() const { return batches_; }

 private:
  Dataset batches_;
};

/// @{
/// A pointer to a loader, as libtorch's programs have it: `for (auto& batch : *loader)`. The order
/// is that of the sampler S, which is random unless options in braces say otherwise. As
/// torch::data::make_data_loader.
template <std::convertible_to<IndexedDataset> D>
std::unique_ptr<DataLoader> make_data_loader(const D& dataset,
                                             const DataLoaderArguments& options = {}) {
  return std::make_unique<DataLoader>(IndexedDataset(dataset), options);
}
template <std::derived_from<Sampler> S, std::convertible_to<IndexedDataset> D>
std::unique_ptr<DataLoader> make_data_loader(const D& dataset, DataLoaderArguments options) {
  options.sampler = S(dataset);
  return make_data_loader(dataset, options);
}
template <std::derived_from<Sampler> S = RandomSampler, std::convertible_to<IndexedDataset> D>
std::unique_ptr<DataLoader> make_data_loader(const D& dataset, const DataLoaderOptions& options) {
  return make_data_loader<S>(dataset, options.arguments());
}
template <std::derived_from<Sampler> S = RandomSampler, std::convertible_to<IndexedDataset> D,
          std::integral BatchSize>
std::unique_ptr<DataLoader> make_data_loader(const D& dataset, BatchSize batch_size) {
  return make_data_loader<S>(dataset, DataLoaderOptions(static_cast<std::int64_t>(batch_size)));
}
/// With the sampler of this object.
template <std::derived_from<Sampler> S, std::convertible_to<IndexedDataset> D>
std::unique_ptr<DataLoader> make_data_loader(const D& dataset, const S& sampler,
                                             const DataLoaderOptions& options) {
  DataLoaderArguments arguments = options.arguments();
  arguments.sampler = sampler;
  return make_data_loader(dataset, arguments);
}
/// @}

/// The examples at `indices` of another dataset. Throws OutOfRangeError when one does not exist. As
/// torch.utils.data.Subset.
class Subset : public IndexedDataset {
 public:
  /// These examples.
  Subset(IndexedDataset examples, std::vector<std::int64_t> indices);
};
/// A dataset split at random into parts of these lengths, by random::permutation(): `auto [train,
/// test] = random_split(examples, {800, 200})`. Throws InvalidArgumentError unless the lengths sum
/// to the number of examples. As torch.utils.data.random_split.
std::vector<Subset> random_split(const IndexedDataset& examples,
                                 const std::vector<std::int64_t>& lengths);
/// The same of lengths in braces.
template <std::convertible_to<IndexedDataset> D, std::integral Length, std::size_t kParts>
std::array<Subset, kParts> random_split(const D& examples, const Length (&lengths)[kParts]) {
  const std::vector<Subset> parts =
      random_split(IndexedDataset(examples), std::vector<std::int64_t>(lengths, lengths + kParts));
  return [&]<std::size_t... I>(std::index_sequence<I...>) {
    return std::array<Subset, kParts>{parts[I]...};
  }
  (std::make_index_sequence<kParts>());
}

}  // namespace tandem::data

/// @cond
template <>
struct std::tuple_size<tandem::data::LoadedExample> : std::integral_constant<std::size_t, 2> {};
template <std::size_t I>
struct std::tuple_element<I, tandem::data::LoadedExample> {
  using type = tandem::Tensor;
};
/// @endcond

/// For Tandem's own code: an example remains one, although it converts to a tensor.
template <>
inline constexpr bool tandem::detail::kConsistsOfTensors<tandem::data::LoadedExample> = true;
