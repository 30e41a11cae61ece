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
#include <iosfwd>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "tandem/errors.h"
#include "tandem/example.h"
#include "tandem/function.h"
#include "tandem/tensor.h"

/// Input pipelines and data loaders.
namespace tandem::data {

/// Selects a pass over a dataset and where it starts.
struct IterateOptions {
  std::uint64_t epoch = 0;  ///< number of the epoch, from 0
  std::int64_t skip = 0;    ///< number of elements to skip at the start
  /// Equal epoch and skip.
  friend bool operator==(const IterateOptions&, const IterateOptions&) = default;
};

/// The dtype and shape of one component. Sizes that differ between elements are -1. As
/// tf.TensorSpec.
struct ComponentSpec {
  DType dtype = float32;  ///< dtype
  Shape shape{};          ///< shape
};
/// Prints the dtype and the shape: "float32 (-1, 4)".
std::ostream& operator<<(std::ostream& out, const ComponentSpec& spec);

/// Result of Dataset::element_spec(): dtypes and shapes of the components, or empty if they are not
/// known.
class ElementSpec : public std::optional<std::vector<ComponentSpec>> {
 public:
  ElementSpec() = default;
  /// These specs; none: not known.
  ElementSpec(std::optional<std::vector<ComponentSpec>> specs)  // NOLINT: implicit
      : std::optional<std::vector<ComponentSpec>>(std::move(specs)) {}
  /// The specs of the components. Throws FailedPreconditionError if they are not known.
  const std::vector<ComponentSpec>& value() const;
  /// The spec of component `index`. Throws FailedPreconditionError if the specs are not known, and
  /// OutOfRangeError.
  const ComponentSpec& operator[](std::size_t index) const;
};
/// Prints the specs: "(float32 (-1, 4), int64 (-1))", or "unknown".
std::ostream& operator<<(std::ostream& out, const ElementSpec& spec);

/// Iterates over one epoch of a dataset. A handle: copies share the position. Not thread-safe.
///
/// May be used in a traced function, as an argument or captured: each call of next() there takes an
/// element in every run. The run throws OutOfRangeError "End of sequence" if there is none left,
/// and InvalidArgumentError for an element that does not match element_spec(). (An iterator that is
/// created while a function is traced is read during the trace.)
/// @code
/// const auto step = td::function([&](td::data::Iterator& batches) {
///   const auto batch = batches.next();
///   return optimizer.minimize(loss(model(batch[0]), batch[1]), variables);
/// });
/// td::data::Iterator batches = dataset.repeat().batch(32).iterate();
/// for (int i = 0; i < 1000; ++i) step(batches);
/// @endcode
class Iterator {
 public:
  Iterator() = default;

  /// Returns the next element. Throws the error of a map, filter or generator of the pipeline; the
  /// iterator is then at its end.
  ///
  /// Throws UnimplementedError inside the branches and loops of a traced function (call it before
  /// them, or use for_each()) and in the graph of a session.
  NextExample next();
  /// Dtypes and shapes of the components: Dataset::element_spec(), or if that is not known those of
  /// the next element, with first axes of any size. Throws FailedPreconditionError if there is no
  /// next element either. As tf.data.Iterator.element_spec.
  std::vector<ComponentSpec> element_spec() const;
  /// The current position. Dataset::iterate(position()) continues from it, in this or another
  /// process.
  IterateOptions position() const;

  class Cursor;
  /// For loops: `for (const Example& e : iterator)` iterates over the remaining elements. Throws
  /// FailedPreconditionError in a traced function, where such a loop would not end.
  Cursor begin();
  /// The end of the iteration.
  std::default_sentinel_t end() const { return {}; }

  /// For Tandem's own code.
  struct State;
  /// For Tandem's own code.
  explicit Iterator(std::shared_ptr<State> state) : state_(std::move(state)) {}
  /// For Tandem's own code.
  std::shared_ptr<ElementPass> pass() const;

 private:
  State& state() const;
  NextExample advance();  // next() of a loop

  std::shared_ptr<State> state_;
};

/// Lets an Iterator be an argument of a traced function (tandem/function.h). The specs of its
/// elements are part of the signature.
template <class V, class K>
void visit_tensors(Iterator& iterator, const V&, const K& key) {
  for (const ComponentSpec& component : iterator.element_spec()) {
    key(static_cast<std::uint64_t>(component.dtype));
    key(static_cast<std::uint64_t>(component.shape.rank()));
    for (const std::int64_t size : component.shape) key(static_cast<std::uint64_t>(size));
  }
  key(iterator.pass());
}

/// A C++ input iterator over the elements of an Iterator.
class Iterator::Cursor {
 public:
  /// Element type.
  using value_type = Example;
  /// Difference type.
  using difference_type = std::ptrdiff_t;

  Cursor() = default;
  /// Takes the first element of `iterator`.
  explicit Cursor(Iterator iterator) : iterator_(std::move(iterator)) { ++*this; }
  /// @{
  /// The current element.
  const Example& operator*() const { return *current_; }
  const Example* operator->() const { return &*current_; }
  /// @}
  /// @{
  /// Takes the next element.
  Cursor& operator++() {
    current_ = iterator_.advance();
    return *this;
  }
  void operator++(int) { ++*this; }
  /// @}
  /// Whether there are no more elements.
  friend bool operator==(const Cursor& cursor, std::default_sentinel_t) { return !cursor.current_; }

 private:
  Iterator iterator_;
  NextExample current_;
};

inline Iterator::Cursor Iterator::begin() { return Cursor(*this); }

}  // namespace tandem::data

/// For Tandem's own code: callables may take an iterator by a reference that is not constant.
template <>
struct tandem::detail::Passed<tandem::data::Iterator> {
  using type = tandem::data::Iterator&;  ///< how it is passed
};

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
/// Function of Dataset::from_generator(): the next example, or empty at the end.
using GeneratorFn = std::function<std::optional<Example>()>;

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

/// Options of Dataset::with_options(). As tf.data.Options.
struct DatasetOptions {
  AutoShardPolicy auto_shard_policy = AutoShardPolicy::kAuto;  ///< sharding by workers
};

/// Options of Dataset::batch().
struct BatchOptions {
  bool drop_remainder = false;  ///< omit the last batch if it is not full
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
  static Dataset from_generator(std::function<GeneratorFn()> make_generator);
  /// The same with the function itself: each pass calls a copy of it.
  template <class F>
  requires std::is_invocable_r_v<std::optional<Example>, F&> static Dataset from_generator(
      F generator) {
    return from_generator(std::function<GeneratorFn()>([generator] { return generator; }));
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
    return with_auto_shard(options.auto_shard_policy);
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
