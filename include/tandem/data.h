// Input pipelines, after tf.data: a Dataset describes a sequence of examples; iterating over it
// makes them.
//
//   auto batches = Dataset::from_tensor_slices({images, labels})
//                      .shuffle(10'000, {.seed = 1}).map(scale).batch(128).prefetch(2);
//   for (const Example& batch : batches) train_step(batch[0], batch[1]);
//
// What iteration yields is a pure function of the dataset and the epoch: shuffles and the random
// operations inside maps draw from the seed, the epoch and the element's position, never from what
// ran before. A training run that keeps an iterator's position() continues with iterate(position)
// exactly where it stopped.
//
// Pipelines run on "/cpu:0" and record no gradients, whatever scopes the caller has open.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/tensor.h"

namespace tandem::data {

// One element of a dataset: the components of an example ({picture, label}) or of a batch of them.
class Example {
 public:
  Example() = default;
  Example(std::initializer_list<Tensor> components) : components_(components) {}
  Example(Tensor component) { components_.push_back(std::move(component)); }  // NOLINT: implicit
  explicit Example(std::vector<Tensor> components) : components_(std::move(components)) {}

  // REQUIRES: index < size().
  const Tensor& operator[](std::size_t index) const { return components_[index]; }
  Tensor& operator[](std::size_t index) { return components_[index]; }
  std::size_t size() const { return components_.size(); }
  bool empty() const { return components_.empty(); }
  const std::vector<Tensor>& components() const { return components_; }
  auto begin() const { return components_.begin(); }
  auto end() const { return components_.end(); }
  void push_back(Tensor component) { components_.push_back(std::move(component)); }

 private:
  std::vector<Tensor> components_;
};

// An example among the arguments of a traced function (tandem/function.h).
template <class V, class K>
void visit_tensors(Example& example, const V& visit, const K& key) {
  key(static_cast<std::uint64_t>(example.size()));
  for (std::size_t i = 0; i < example.size(); ++i) visit(example[i]);
}

// What Iterator::next() gives: the next example, or nothing at the end of the epoch.
class NextExample : public std::optional<Example> {
 public:
  using std::optional<Example>::optional;
  // A component of the example. Throws OutOfRangeError at the end of the epoch.
  const Tensor& operator[](std::size_t index) const;
};

// Which pass over a dataset, and how many of its elements to leave out from the front.
struct IterateOptions {
  std::uint64_t epoch = 0;
  std::int64_t skip = 0;
  friend bool operator==(const IterateOptions&, const IterateOptions&) = default;
};

// A position in one epoch of a dataset. A handle: copies share the position.
// Not thread-safe: one thread at a time.
class Iterator {
 public:
  Iterator() = default;

  // The next element. Throws what a map, a filter or a generator of the pipeline threw; the
  // iterator is at its end then.
  NextExample next();
  // Where the iterator stands: Dataset::iterate(position()) goes on from here, in this process or
  // another one.
  IterateOptions position() const;

  // `for (const Example& e : iterator)` takes what is left.
  class Cursor;
  Cursor begin();
  std::default_sentinel_t end() const { return {}; }

  struct State;
  explicit Iterator(std::shared_ptr<State> state) : state_(std::move(state)) {}

 private:
  std::shared_ptr<State> state_;
};

// An input iterator over an Iterator, for range-for.
class Iterator::Cursor {
 public:
  using value_type = Example;
  using difference_type = std::ptrdiff_t;

  Cursor() = default;
  explicit Cursor(Iterator iterator) : iterator_(std::move(iterator)) { ++*this; }
  const Example& operator*() const { return *current_; }
  const Example* operator->() const { return &*current_; }
  Cursor& operator++() {
    current_ = iterator_.next();
    return *this;
  }
  void operator++(int) { ++*this; }
  friend bool operator==(const Cursor& cursor, std::default_sentinel_t) { return !cursor.current_; }

 private:
  Iterator iterator_;
  NextExample current_;
};

inline Iterator::Cursor Iterator::begin() { return Cursor(*this); }

inline constexpr std::int64_t kInfiniteCardinality = -1;
inline constexpr std::int64_t kUnknownCardinality = -2;

// The dtype and shape of one component. Sizes that differ between elements are -1.
struct ComponentSpec {
  DType dtype = float32;
  Shape shape{};
};

using MapFn = std::function<Example(const Example&)>;
using FilterFn = std::function<bool(const Example&)>;
class Dataset;
// The elements of one file.
using ReadFileFn = std::function<Dataset(const std::string& file)>;
// Makes the next example, or nothing at the end.
using GeneratorFn = std::function<std::optional<Example>()>;

struct MapOptions {
  // Threads that run the function; 1: the thread that asks for the element.
  int num_parallel_calls = 1;
  // Elements in the order of the input. When false they come as they are ready, and iteration is no
  // longer a pure function of the epoch.
  bool deterministic = true;
};

struct ShuffleOptions {
  // Not given: from random::set_seed's, as it is when shuffle() is called.
  std::optional<std::uint64_t> seed{};
  // A new order each epoch (and each repetition); false: the same order always.
  bool reshuffle_each_iteration = true;
};

// How a dataset becomes the input of several workers (distribute::MultiWorkerMirroredStrategy).
enum class AutoShardPolicy {
  kAuto,  // kFile where batches come from files (Dataset::from_files), else kData
  // Every worker has the same dataset of global batches, from files, and reads every n-th file
  // alone: its steps take its part of a global batch from those. The epoch ends when the last
  // worker's files do. InvalidArgumentError "Could not apply FILE based sharding: ..." where there
  // are fewer files than workers; NotFoundError "Found an unshardable source dataset: ..." for a
  // dataset that is not batches of files.
  kFile,
  // Every worker has the same dataset of global batches, and takes its part of each batch.
  kData,
  // Every worker has a dataset of its own, as where each reads other files, and trains on all of
  // it: a step's global batch is what the workers' next batches make together. The epoch ends when
  // the last of them does.
  kOff,
};

struct BatchOptions {
  bool drop_remainder = false;  // leave out the last batch when it is not full
};

class DatasetNode;

// A value: copies describe the same pipeline, and each method returns a new one.
// Thread-safe: several threads may iterate over one dataset, each with its own Iterator.
class Dataset {
 public:
  // One element: the tensors as they are.
  static Dataset from_tensors(const Example& tensors);
  // An element for each index of the tensors' first axes. Throws InvalidArgumentError when these
  // differ, or for a scalar. Keeps the tensors in memory; copies of them that are not on the CPU.
  static Dataset from_tensor_slices(const Example& tensors);
  // `make_generator` is called for each pass and returns a function that yields its examples in
  // turn. Skipping (IterateOptions::skip) runs the generator and throws the examples away.
  static Dataset from_generator(std::function<GeneratorFn()> make_generator);
  // The elements of one file behind those of another: `read` of each, which is called when its turn
  // comes in a pass, and may be by another thread. Several workers share the files out
  // (AutoShardPolicy::kFile). Throws InvalidArgumentError for no files.
  //
  //   Dataset::from_files(paths, [](const std::string& path) {
  //     return datasets::read_cifar10(path).dataset();
  //   }).shuffle(10'000).batch(128)
  static Dataset from_files(std::vector<std::string> files, ReadFileFn read);
  // The components of all of `datasets` side by side, up to the shortest.
  static Dataset zip(const std::vector<Dataset>& datasets);

  // fn of each element. Random operations inside draw by the element's position, so they repeat.
  // With several calls in parallel fn must be thread-safe.
  Dataset map(MapFn fn, MapOptions options = {}) const;
  // The elements that fn holds for.
  Dataset filter(FilterFn fn) const;
  // In random order: each element is drawn from a buffer of the next `buffer_size` ones.
  Dataset shuffle(std::int64_t buffer_size, ShuffleOptions options = {}) const;
  // `batch_size` consecutive elements stacked along a new first axis. Elements of different shapes
  // or dtypes in one batch are an InvalidArgumentError of the iterator.
  Dataset batch(std::int64_t batch_size, BatchOptions options = {}) const;
  // The dataset `count` times over; -1: for ever.
  Dataset repeat(std::int64_t count = -1) const;
  // At most the first `count` elements; -1: all.
  Dataset take(std::int64_t count) const;
  // All but the first `count` elements.
  Dataset skip(std::int64_t count) const;
  // Every `num_shards`-th element, from the `index`-th on.
  Dataset shard(std::int64_t num_shards, std::int64_t index) const;
  // Elements kept in memory as they are first made. They are those of epoch 0 in every epoch.
  Dataset cache() const;
  // Up to `buffer_size` elements made ahead by a thread of its own.
  Dataset prefetch(std::int64_t buffer_size) const;
  // Up to `buffer_size` elements made and copied to `device` ahead by a thread of its own, after
  // tf.data.experimental.prefetch_to_device: copies to a GPU go through pinned memory, on a stream
  // of their own, while the GPU computes; what is enqueued behind next() waits for the element's
  // copies on the GPU, the host does not. The last step of a pipeline: those behind it would bring
  // the elements back to the CPU. fit() and the datasets of strategies copy ahead by themselves.
  // Throws InvalidArgumentError for a device that is not there, or a buffer of less than one
  // element.
  //
  //   for (const Example& batch : batches.prefetch_to_device("/gpu:0")) step(batch[0], batch[1]);
  Dataset prefetch_to_device(std::string_view device, std::int64_t buffer_size = 2) const;

  // The same elements; strategies share them out so. Without it, kAuto.
  Dataset with_auto_shard(AutoShardPolicy policy) const;
  // What with_auto_shard() said, on the way to this dataset.
  AutoShardPolicy auto_shard_policy() const;

  // The number of elements of an epoch, or kInfiniteCardinality, or kUnknownCardinality.
  std::int64_t cardinality() const;
  // The components, where they are known without making an element: behind maps and generators they
  // are not.
  std::optional<std::vector<ComponentSpec>> element_spec() const;

  // The elements of one epoch. Skipping does not run maps on what is skipped unless a shuffle,
  // filter or cache behind them needs it. Throws InvalidArgumentError for a negative skip.
  Iterator iterate(IterateOptions options = {}) const;
  // iterate() of epoch 0 the first time, then of epoch 1, ...; the count belongs to all copies of
  // this dataset.
  Iterator::Cursor begin() const;
  std::default_sentinel_t end() const { return {}; }

  Dataset() = default;
  bool defined() const { return node_ != nullptr; }

  explicit Dataset(std::shared_ptr<const DatasetNode> node) : node_(std::move(node)) {}
  // REQUIRES: defined(); FailedPreconditionError otherwise.
  const std::shared_ptr<const DatasetNode>& node() const;

 private:
  std::shared_ptr<const DatasetNode> node_;
};

}  // namespace tandem::data

namespace tandem {

// Calls `body` with each element of the dataset's next epoch, as a range-for does. While a graph is
// built (td::function, GraphScope) the body is traced once and becomes a loop of the program, which
// iterates over the dataset anew, its next epoch, in every run:
//
//   const auto epoch = td::function([&] {
//     td::for_each(batches, [&](const td::data::Example& batch) {
//       optimizer.minimize(loss(model(batch[0]), batch[1]), variables);
//     });
//   });
//
// It is traced for what Dataset::element_spec() says; where that says nothing, for elements like
// the first of epoch 0, with any size of their first axes. Elements stay where the dataset has them
// (prefetch_to_device()) until the body needs them elsewhere. An element of other dtypes or shapes
// is an InvalidArgumentError of the run. Throws what the pipeline throws.
void for_each(const data::Dataset& dataset,
              const std::function<void(const data::Example& element)>& body);

}  // namespace tandem
