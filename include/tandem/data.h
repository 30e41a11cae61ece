/// @file
/// Input pipelines. As tf.data: a Dataset describes a sequence of examples, and iterating over it
/// produces them.
/// @code
/// auto batches = Dataset::from_tensor_slices({images, labels})
///                    .shuffle(10'000, {.seed = 1}).map(scale).batch(128).prefetch(2);
/// for (const auto& [x, y] : batches) train_step(x, y);  // or batch[0], batch[1] of an Example
/// @endcode
///
/// The examples are a pure function of the dataset and the epoch. Shuffles and the random
/// operations inside maps depend on the seed, the epoch, the element's position and the shard()
/// before them only, so that shards have different random numbers. So have different
/// transformations of a pipeline, also in branches that zip() or concatenate() joins, and the files
/// of from_files(); a dataset that several branches use has the same elements in each. A training
/// run that stores an iterator's position() can continue with iterate(position) exactly where it
/// stopped.
///
/// Pipelines run on "/cpu:0" and record no gradients, whatever scopes the caller has opened.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "tandem/data_iterator.h"
#include "tandem/errors.h"
#include "tandem/example.h"
#include "tandem/function.h"
#include "tandem/tensor.h"

/// Input pipelines and data loaders.
namespace tandem::data {

/// Dataset::cardinality() of an infinite dataset.
inline constexpr std::int64_t kInfiniteCardinality = -1;
/// Dataset::cardinality() if it is not known.
inline constexpr std::int64_t kUnknownCardinality = -2;
/// For Dataset::prefetch() and MapOptions::num_parallel_calls: a number that Tandem chooses, 2
/// elements ahead, and as many parallel calls as there are cores. As tf.data.AUTOTUNE; the numbers
/// do not change while the pipeline runs.
inline constexpr int kAutotune = -1;

/// Function of Dataset::map().
using MapFn = std::function<Example(const Example&)>;
/// Predicate of Dataset::filter().
using FilterFn = std::function<bool(const Example&)>;
/// Predicate of Dataset::filter() as operations: returns a bool scalar.
using TensorFilterFn = std::function<Tensor(const Example&)>;
class Dataset;
/// Function of Dataset::from_files(): the elements of one file.
using ReadFileFn = std::function<Dataset(const std::string& file)>;
/// Function of Dataset::flat_map() and interleave(): the dataset of an element.
using DatasetMapFn = std::function<Dataset(const Example&)>;
/// Function of Dataset::bucket_by_sequence_length(): the length of an element.
using LengthFn = std::function<std::int64_t(const Example&)>;
/// Function of Dataset::from_generator(): the next example, or empty at the end.
using GeneratorFn = std::function<std::optional<Example>()>;

/// Options of Dataset::from_generator(): the dtypes and shapes of the components, one by one or
/// together, which element_spec() has and each example is compared with. A size of -1 is open. As
/// the arguments of tf.data.Dataset.from_generator.
struct GeneratorOptions {
  std::vector<DType> output_types{};          ///< dtypes
  std::vector<Shape> output_shapes{};         ///< shapes; default: any
  std::vector<InputSpec> output_signature{};  ///< both, `{td::TensorSpec({2}, td::float32)}`
};

/// Options of Dataset::map().
struct MapOptions {
  /// Number of threads that run the function; 1: the thread that requests the element; kAutotune:
  /// one per core.
  int num_parallel_calls = 1;
  /// Keeps the order of the input. If false, elements come as they become ready, and iteration is
  /// no longer a pure function of the epoch.
  bool deterministic = true;
};

/// Options of Dataset::shuffle().
struct ShuffleOptions {
  /// Default: derived from random::set_seed()'s seed when shuffle() is called.
  std::optional<std::uint64_t> seed{};
  /// A new order in each epoch (and each repetition); false: the same order always.
  bool reshuffle_each_iteration = true;
};

/// How the workers of a distribute::MultiWorkerMirroredStrategy share a dataset. As
/// tf.data.experimental.AutoShardPolicy.
enum class AutoShardPolicy {
  kAuto,  ///< kFile for datasets of Dataset::from_files(), else kData
  /// All workers have the same dataset of global batches from files. Each reads every n-th file
  /// only, and takes its part of a global batch from those. The epoch ends when the last worker has
  /// read its files. Throws InvalidArgumentError "Could not apply FILE based sharding: ..." if
  /// there are fewer files than workers, and NotFoundError "Found an unshardable source dataset:
  /// ..." if the dataset is not made of batches from files.
  kFile,
  /// All workers have the same dataset of global batches, and take their part of each batch.
  kData,
  /// Each worker has a dataset of its own and trains on all of it. The global batch of a step
  /// consists of the workers' next batches. The epoch ends when the last worker's dataset does.
  kOff,
  AUTO = kAuto,  ///< as kAuto
  FILE = kFile,  ///< as kFile
  DATA = kData,  ///< as kData
  OFF = kOff,    ///< as kOff
  Auto = kAuto,  ///< as kAuto
  File = kFile,  ///< as kFile
  Data = kData,  ///< as kData
  Off = kOff,    ///< as kOff
};

/// Options of DatasetOptions. As tf.data.experimental.DistributeOptions.
struct DistributeOptions {
  AutoShardPolicy auto_shard_policy = AutoShardPolicy::kAuto;  ///< sharding by workers
};

/// Options of Dataset::with_options(). As tf.data.Options.
struct DatasetOptions {
  AutoShardPolicy auto_shard_policy = AutoShardPolicy::kAuto;  ///< sharding by workers
  DistributeOptions experimental_distribute{};  ///< the same in TensorFlow's words, if not kAuto
};

/// Options of Dataset::batch().
struct BatchOptions {
  bool drop_remainder = false;  ///< omit the last batch if it is not full
};

/// Options of Dataset::padded_batch().
struct PaddedBatchOptions {
  /// A shape for each component, with -1 for sizes that are the longest of the batch; none: all
  /// sizes are.
  std::vector<Shape> padded_shapes{};
  /// A number for each component, or one for all; none: 0, and false.
  std::vector<double> padding_values{};
  bool drop_remainder = false;  ///< omit the last batch if it is not full
};

/// Options of Dataset::bucket_by_sequence_length().
struct BucketOptions {
  std::vector<Shape> padded_shapes{};    ///< as PaddedBatchOptions::padded_shapes
  std::vector<double> padding_values{};  ///< as PaddedBatchOptions::padding_values
  /// Pads unknown sizes to the longest length of the bucket, its boundary minus 1. Elements of the
  /// last bucket, which has no boundary, are then an error.
  bool pad_to_bucket_boundary = false;
  bool no_padding = false;      ///< elements of one batch have one shape
  bool drop_remainder = false;  ///< omit batches that are not full
};

/// Options of Dataset::window().
struct WindowOptions {
  std::int64_t shift = 0;       ///< elements from one window's start to the next; 0: `size`
  std::int64_t stride = 1;      ///< elements from one of a window to the next
  bool drop_remainder = false;  ///< omit windows at the end that are not full
};

/// Options of Dataset::interleave().
struct InterleaveOptions {
  std::int64_t cycle_length = 2;  ///< datasets that are read in turns
  std::int64_t block_length = 1;  ///< elements that each gives in its turn
};

/// Options of Dataset::sample_from_datasets().
struct SampleOptions {
  /// A probability, or any number of at least 0, for each dataset; none: all equal.
  std::vector<double> weights{};
  /// Default: derived from random::set_seed()'s seed when the dataset is made.
  std::optional<std::uint64_t> seed{};
  bool stop_on_empty_dataset = false;  ///< the end of one dataset is the end of all
};

}  // namespace tandem::data

namespace tandem::detail {

// The components of an example for a function that takes `count` tensors. Throws
// InvalidArgumentError for another number.
const Tensor* components_for(const char* stage, const data::Example& element, std::size_t count);

// A result of a function of map().
template <class R>
concept MapResult = std::convertible_to<R, data::Example> || std::convertible_to<R, Tensor> ||
    std::convertible_to<R, std::vector<Tensor>> || kTupleOfTensors<std::remove_cvref_t<R>>;

template <MapResult R>
data::Example example_of(R&& result) {
  if constexpr (std::convertible_to<R, data::Example>)
    return std::forward<R>(result);
  else if constexpr (std::convertible_to<R, Tensor>)
    return data::Example(static_cast<Tensor>(std::forward<R>(result)));
  else if constexpr (std::convertible_to<R, std::vector<Tensor>>)
    return data::Example(static_cast<std::vector<Tensor>>(std::forward<R>(result)));
  else
    return std::apply(
        [](const auto&... component) { return data::Example{static_cast<Tensor>(component)...}; },
        result);
}

// A function of elements made of one whose arguments are the components.
template <class F>
auto of_components(const char* stage, F fn) {
  return [stage, fn = std::move(fn)](const data::Example& element) mutable -> decltype(auto) {
    if constexpr (std::invocable<F&, const data::Example&>) {
      return fn(element);
    } else {
      constexpr std::size_t kCount = number_of_tensors<F>();
      return call_with(fn, components_for(stage, element, kCount),
                       std::make_index_sequence<kCount>());
    }
  };
}

// Whether map() and filter() can call the function.
template <class F>
inline constexpr bool kElementFunction = std::is_invocable_v<F&, const data::Example&> ||
                                         number_of_tensors<F>() > 0;

// An empty std::function remains empty.
template <class F>
bool is_empty_function(const F& fn) {
  if constexpr (requires { fn == nullptr; })
    return fn == nullptr;
  else
    return false;
}

}  // namespace tandem::detail

namespace tandem::data {

class DatasetNode;

/// A description of a sequence of elements. A value: copies describe the same pipeline, and each
/// method returns a new dataset. As tf.data.Dataset.
///
/// Thread-safe: several threads may iterate over one dataset, each with its own Iterator.
class Dataset {
 public:
  /// A dataset of one element. As tf.data.Dataset.from_tensors.
  static Dataset from_tensors(const Example& tensors);
  /// A dataset of slices along the tensors' first axes. Keeps the tensors in CPU memory (copies
  /// them if they are on another device). Throws InvalidArgumentError for first axes of different
  /// sizes and for scalars. As tf.data.Dataset.from_tensor_slices.
  static Dataset from_tensor_slices(const Example& tensors);
  /// A dataset of the examples that a function produces one after another. `make_generator` is
  /// called for each pass and returns that function. Skipping (IterateOptions::skip) runs it and
  /// discards the examples. As tf.data.Dataset.from_generator.
  /// An example of other dtypes or shapes than those of the options is an InvalidArgumentError.
  static Dataset from_generator(std::function<GeneratorFn()> make_generator,
                                const GeneratorOptions& options = {});
  /// The same with the function itself: each pass calls a copy of it.
  template <class F>
  requires std::is_invocable_r_v<std::optional<Example>, F&> static Dataset from_generator(
      F generator, const GeneratorOptions& options = {}) {
    return from_generator(std::function<GeneratorFn()>([generator] { return generator; }), options);
  }
  /// A dataset of the elements of several files, one file after another. `read` is called for each
  /// file when it is reached, possibly on another thread. Several workers may split the files
  /// (AutoShardPolicy::kFile). Throws InvalidArgumentError if there are no files.
  /// @code
  /// Dataset::from_files(paths, [](const std::string& path) {
  ///   return datasets::read_cifar10(path).dataset();
  /// }).shuffle(10'000).batch(128)
  /// @endcode
  static Dataset from_files(std::vector<std::string> files, ReadFileFn read);
  /// @{
  /// A dataset of int64 scalars from `start` (0) up to, but not including, `stop`, each `step`
  /// after the one before. Throws InvalidArgumentError for a step of 0. As tf.data.Dataset.range.
  static Dataset range(std::int64_t stop) { return range(0, stop); }
  static Dataset range(std::int64_t start, std::int64_t stop, std::int64_t step = 1);
  /// @}
  /// @{
  /// Combines the components of the elements of all datasets, up to the end of the shortest. As
  /// tf.data.Dataset.zip.
  static Dataset zip(const std::vector<Dataset>& datasets);
  template <std::same_as<Dataset>... D>
  static Dataset zip(const Dataset& first, const Dataset& second, const D&... others) {
    return zip(std::vector<Dataset>{first, second, others...});
  }
  /// @}
  /// The elements of several datasets, each time of one that is chosen at random, as often as
  /// `weights` says. A dataset that has ended is not chosen again. A new order in each epoch. As
  /// tf.data.Dataset.sample_from_datasets.
  static Dataset sample_from_datasets(const std::vector<Dataset>& datasets,
                                      const SampleOptions& options = {});

  /// @{
  /// Applies fn to each element. Random operations in fn depend on the element's position, so that
  /// they repeat in a resumed run. With several parallel calls fn must be thread-safe. As
  /// tf.data.Dataset.map.
  ///
  /// fn takes an Example, or one Tensor for each component, up to 8; the iterator throws
  /// InvalidArgumentError for elements of another number of components. It returns an Example, a
  /// Tensor, or a pair, tuple or vector of tensors.
  /// @code
  /// dataset.map([](td::Tensor x, td::Tensor y) { return std::pair{x / 255.0, td::one_hot(y, 3)};
  /// })
  /// @endcode
  Dataset map(MapFn fn, MapOptions options = {}) const;
  template <class F>
  requires(!std::convertible_to<F, MapFn>) Dataset map(F&& fn, MapOptions options = {})
  const {
    using Fn = std::decay_t<F>;
    static_assert(tandem::detail::kElementFunction<Fn>,
                  "the function of map() takes a const Example&, or one Tensor for each component "
                  "of the elements: (Tensor), (Tensor, Tensor), ...");
    if constexpr (tandem::detail::kElementFunction<Fn>) {
      if (tandem::detail::is_empty_function(fn)) return map(MapFn(), options);
      auto called = tandem::detail::of_components("map", Fn(std::forward<F>(fn)));
      using Result = decltype(called(std::declval<const Example&>()));
      static_assert(tandem::detail::MapResult<Result>,
                    "the function of map() returns an Example, a Tensor, or a pair, tuple or "
                    "vector of tensors");
      if constexpr (tandem::detail::MapResult<Result>)
        return map(MapFn([called = std::move(called)](const Example& element) mutable {
                     return tandem::detail::example_of(called(element));
                   }),
                   options);
    }
    return *this;  // not reached
  }
  template <class F, std::same_as<int> N>
  Dataset map(F&& fn, N num_parallel_calls) const {
    return map(std::forward<F>(fn), MapOptions{.num_parallel_calls = num_parallel_calls});
  }
  /// @}
  /// @{
  /// Keeps the elements for which fn returns true. fn takes an Example, or one Tensor for each
  /// component, as that of map(). A predicate that returns a tensor can be sent to
  /// the workers of a parameter server strategy; the iterator throws InvalidArgumentError
  /// "`predicate` return type must be convertible to a scalar boolean tensor. Got ..." if it is no
  /// bool scalar. As tf.data.Dataset.filter.
  Dataset filter(FilterFn fn) const;
  Dataset filter(TensorFilterFn fn) const;
  template <class F>
  requires(!std::convertible_to<F, FilterFn> && !std::convertible_to<F, TensorFilterFn>) Dataset
      filter(F&& fn)
  const {
    using Fn = std::decay_t<F>;
    static_assert(tandem::detail::kElementFunction<Fn>,
                  "the function of filter() takes a const Example&, or one Tensor for each "
                  "component of the elements: (Tensor), (Tensor, Tensor), ...");
    if constexpr (tandem::detail::kElementFunction<Fn>) {
      if (tandem::detail::is_empty_function(fn)) return filter(FilterFn());
      auto called = tandem::detail::of_components("filter", Fn(std::forward<F>(fn)));
      using Result = decltype(called(std::declval<const Example&>()));
      constexpr bool kTensor = std::convertible_to<Result, Tensor>;
      static_assert(kTensor || std::convertible_to<Result, bool>,
                    "the function of filter() returns a bool or a Tensor");
      if constexpr (kTensor)
        return filter(TensorFilterFn(std::move(called)));
      else if constexpr (std::convertible_to<Result, bool>)
        return filter(FilterFn(std::move(called)));
    }
    return *this;  // not reached
  }
  /// @}
  /// The elements of the dataset of each element, one dataset after another. Random transformations
  /// in fn's datasets have random numbers of their own for each element. As
  /// tf.data.Dataset.flat_map.
  Dataset flat_map(DatasetMapFn fn) const;
  /// The elements of the datasets of `cycle_length` elements, `block_length` of each in turns. When
  /// a dataset ends, the next element's takes its place in its next turn. As
  /// tf.data.Dataset.interleave, but on the thread that requests the element: a prefetch() in fn
  /// makes its dataset run ahead.
  Dataset interleave(DatasetMapFn fn, InterleaveOptions options = {}) const;
  /// The elements of this dataset, then those of `other`. The iterator does not check that both
  /// have the same components. As tf.data.Dataset.concatenate.
  Dataset concatenate(const Dataset& other) const;
  /// Adds the number of the element, counted from `start`, as the first component: an int64 scalar.
  /// As tf.data.Dataset.enumerate.
  Dataset enumerate(std::int64_t start = 0) const;
  /// Randomizes the order: each element is sampled from a buffer of the next `buffer_size`
  /// elements. As tf.data.Dataset.shuffle.
  Dataset shuffle(std::int64_t buffer_size, ShuffleOptions options = {}) const;
  /// The same with the first option, `shuffle(100, 1)`.
  template <std::integral Seed>
  requires(!std::same_as<Seed, bool>) Dataset
      shuffle(std::int64_t buffer_size, Seed seed, bool reshuffle_each_iteration = true)
  const {
    return shuffle(buffer_size,
                   ShuffleOptions{.seed = static_cast<std::uint64_t>(seed),
                                  .reshuffle_each_iteration = reshuffle_each_iteration});
  }
  /// Calls `state = fn(state, element)` for each element of a pass, and returns the last state.
  /// `element`: an Example, or a Tensor for elements of one component. As
  /// tf.data.Dataset.reduce, but for a state of any type.
  template <class State, class F>
  State reduce(State initial_state, F fn) const {
    State state = std::move(initial_state);
    for (const Example& element : *this) {
      if constexpr (std::is_invocable_v<F&, const State&, const Example&>)
        state = fn(std::as_const(state), element);
      else
        state = fn(std::as_const(state), *tandem::detail::components_for("reduce", element, 1));
    }
    return state;
  }
  /// Stacks `batch_size` consecutive elements along a new first axis. The iterator throws
  /// InvalidArgumentError if elements of one batch differ in shape or dtype. As
  /// tf.data.Dataset.batch.
  Dataset batch(std::int64_t batch_size, BatchOptions options = {}) const;
  /// The same with the option, `batch(32, true)`.
  template <std::same_as<bool> Drop>
  Dataset batch(std::int64_t batch_size, Drop drop_remainder) const {
    return batch(batch_size, BatchOptions{.drop_remainder = drop_remainder});
  }
  /// Stacks consecutive elements of different sizes: pads each component at the ends of its axes to
  /// `padded_shapes`, or to the longest of the batch. The iterator throws InvalidArgumentError for
  /// elements that are larger, and for other numbers of axes. As tf.data.Dataset.padded_batch.
  /// @code
  /// sentences.padded_batch(32, {.padding_values = {-1}})  // int64 [32, longest]
  /// @endcode
  Dataset padded_batch(std::int64_t batch_size, const PaddedBatchOptions& options = {}) const;
  /// Batches of elements of similar lengths. Bucket k has lengths of [boundaries[k-1],
  /// boundaries[k]); a batch is made when its bucket has bucket_batch_sizes[k] elements. The
  /// remaining elements follow at the end, bucket by bucket. Throws InvalidArgumentError unless the
  /// boundaries increase and there is one size more. As tf.data.Dataset.bucket_by_sequence_length.
  Dataset bucket_by_sequence_length(LengthFn length, std::vector<std::int64_t> bucket_boundaries,
                                    std::vector<std::int64_t> bucket_batch_sizes,
                                    const BucketOptions& options = {}) const;
  /// The elements of batches: splits each component along its first axis. The iterator throws
  /// InvalidArgumentError if these differ in size. As tf.data.Dataset.unbatch.
  Dataset unbatch() const;
  /// Windows of `size` consecutive elements, stacked along a new first axis; those at the end may
  /// be shorter. As tf.data.Dataset.window, whose windows are datasets, followed by flat_map() and
  /// batch().
  /// @code
  /// Dataset::range(10).window(4, {.shift = 3, .stride = 2})  // [0 2 4 6] [3 5 7 9] [6 8] [9]
  /// @endcode
  Dataset window(std::int64_t size, WindowOptions options = {}) const;
  /// Repeats the dataset `count` times; -1: without end. As tf.data.Dataset.repeat.
  Dataset repeat(std::int64_t count = -1) const;
  /// At most the first `count` elements; -1: all. As tf.data.Dataset.take.
  Dataset take(std::int64_t count) const;
  /// All but the first `count` elements. As tf.data.Dataset.skip.
  Dataset skip(std::int64_t count) const;
  /// Every `num_shards`-th element, starting with element `index`. As tf.data.Dataset.shard.
  Dataset shard(std::int64_t num_shards, std::int64_t index) const;
  /// Keeps elements in memory once they have been produced. Every epoch then has the elements of
  /// epoch 0. As tf.data.Dataset.cache.
  Dataset cache() const;
  /// Produces up to `buffer_size` elements ahead on a background thread; kAutotune: 2. As
  /// tf.data.Dataset.prefetch.
  Dataset prefetch(std::int64_t buffer_size) const;
  /// Produces up to `buffer_size` elements ahead on a background thread and copies them to
  /// `device`. As tf.data.experimental.prefetch_to_device.
  ///
  /// Copies to a GPU use pinned memory and a stream of their own, and overlap with computation.
  /// Operations enqueued after next() wait for the copies on the GPU; the host does not wait. Must
  /// be the last transformation: later ones would copy the elements back to the CPU. fit() and the
  /// datasets of strategies prefetch by themselves. Throws InvalidArgumentError for a device that
  /// does not exist and for a buffer size below 1.
  /// @code
  /// for (const Example& batch : batches.prefetch_to_device("/gpu:0")) step(batch[0], batch[1]);
  /// @endcode
  Dataset prefetch_to_device(std::string_view device, std::int64_t buffer_size = 2) const;

  /// The same elements with another sharding policy for multi-worker strategies. Default: kAuto.
  Dataset with_auto_shard(AutoShardPolicy policy) const;
  /// The same elements with these options. As tf.data.Dataset.with_options.
  Dataset with_options(const DatasetOptions& options) const {
    const AutoShardPolicy policy = options.experimental_distribute.auto_shard_policy;
    return with_auto_shard(policy == AutoShardPolicy::kAuto ? options.auto_shard_policy : policy);
  }
  /// The policy that was set on this dataset or its inputs.
  AutoShardPolicy auto_shard_policy() const;

  /// Number of elements per epoch, or kInfiniteCardinality, or kUnknownCardinality. As
  /// tf.data.Dataset.cardinality.
  std::int64_t cardinality() const;
  /// Number of elements per epoch. Throws FailedPreconditionError if it is infinite or not known.
  /// As len() of a tf.data.Dataset.
  std::int64_t size() const;
  /// Dtypes and shapes of the components, if they are known without producing an element. They are
  /// unknown after maps and generators, because Tandem does not call a function of yours before you
  /// ask for an element. (iterate().element_spec() takes them from the first element then.)
  ElementSpec element_spec() const;

  /// Iterates over one epoch. Skipped elements are not passed to maps, unless a later shuffle,
  /// filter or cache needs them. Throws InvalidArgumentError for a negative skip.
  Iterator iterate(IterateOptions options = {}) const;
  /// Starts the next epoch: the first call starts epoch 0. Copies of a dataset share the counter.
  Iterator::Cursor begin() const;
  /// The end of the iteration.
  std::default_sentinel_t end() const { return {}; }

  Dataset() = default;
  bool defined() const { return node_ != nullptr; }  ///< false for a default-constructed dataset

  /// For Tandem's own code.
  explicit Dataset(std::shared_ptr<const DatasetNode> node) : node_(std::move(node)) {}
  /// For Tandem's own code. REQUIRES: defined(); throws FailedPreconditionError otherwise.
  const std::shared_ptr<const DatasetNode>& node() const;

 private:
  std::shared_ptr<const DatasetNode> node_;
};

}  // namespace tandem::data

namespace tandem {

/// Calls `body` for each element of the dataset's next epoch, like a range-based for loop. While a
/// graph is built (td::function, GraphScope), the body is traced once and becomes a loop in the
/// graph. Each run of the graph iterates over the dataset's next epoch:
/// @code
/// const auto epoch = td::function([&] {
///   td::for_each(batches, [&](const td::data::Example& batch) {
///     optimizer.minimize(loss(model(batch[0]), batch[1]), variables);
///   });
/// });
/// @endcode
/// The body is traced for Dataset::element_spec(). If that is not known, it is traced for elements
/// like the first one of epoch 0, with first axes of any size. Elements stay on the dataset's
/// device (see prefetch_to_device()) until the body needs them elsewhere. The run throws
/// InvalidArgumentError for an element of other dtypes or shapes, and the errors of the pipeline.
void for_each(const data::Dataset& dataset,
              const std::function<void(const data::Example& element)>& body);

}  // namespace tandem
