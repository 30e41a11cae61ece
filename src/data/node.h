// The implementation of a Dataset: one transformation of a pipeline, with its inputs.
#pragma once

#include <atomic>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "core/mutex.h"
#include "data/stream.h"

namespace tandem::data {

class GraphFunction;  // data/graph_function.h
class StageWriter;    // data/description.h
namespace proto {
class Stage;
}

using Spec = std::optional<std::vector<ComponentSpec>>;
class DatasetNode;
using NodePtr = std::shared_ptr<const DatasetNode>;

// Tensors whose rows (indices of the first axis) are the elements of a dataset.
class RowSource {
 public:
  explicit RowSource(std::vector<Tensor> tensors) : tensors_(std::move(tensors)) {}
  std::int64_t rows() const { return tensors_[0].size_word(0); }
  const std::vector<Tensor>& tensors() const { return tensors_; }
  // The spec of an element.
  std::vector<ComponentSpec> spec() const;
  // One row, as views.
  Example row(std::int64_t index) const;
  // The rows, stacked. Views if the rows are consecutive and aligned.
  Example gather(std::span<const std::int64_t> indices) const;

 private:
  std::vector<Tensor> tensors_;
};

// A worker's shard of a dataset of files. The worker reads every `workers`-th file. Each global
// batch is split over `replicas` replicas; the worker has the rows of `local_replicas` of them,
// beginning with `first_replica`.
struct FileShard {
  std::int64_t workers = 1, worker = 0;
  std::int64_t replicas = 1, first_replica = 0, local_replicas = 1;
  bool batched = false;  // a later transformation batches the elements
  friend bool operator==(const FileShard&, const FileShard&) = default;
};

// Gives random transformations other places, so that their random numbers differ from those of
// other parts of a pipeline.
struct PlaceChange {
  int offset = 0;            // added to the places
  std::uint64_t source = 0;  // mixed into the seeds; 0: nothing
  friend auto operator<=>(const PlaceChange&, const PlaceChange&) = default;
};

// The seed of a random transformation: the given one, or one derived from the process's seed, the
// transformation's place in the pipeline and the shard of its input.
class TransformationSeed {
 public:
  // A given seed.
  explicit TransformationSeed(std::uint64_t seed) : base_(seed) {}
  // The place is the number of transformations before it.
  explicit TransformationSeed(const DatasetNode& input);

  std::uint64_t value() const;
  bool is_default() const { return place_.has_value(); }
  // The same, unless it is a given seed, at another place.
  TransformationSeed moved(const PlaceChange& change) const;

 private:
  std::uint64_t base_;
  std::optional<int> place_;  // none: `base_` is given
  std::uint64_t shard_ = 0, worker_ = 0, source_ = 0;
};

// Thread-safe: immutable apart from the epoch counter and caches.
class DatasetNode {
 public:
  explicit DatasetNode(int depth) : depth_(depth) {}
  virtual ~DatasetNode() = default;
  DatasetNode(const DatasetNode&) = delete;
  DatasetNode& operator=(const DatasetNode&) = delete;

  // Starts an iteration. This is cheap: work and threads start with the first element.
  virtual StreamPtr<Example> elements(std::uint64_t epoch) const = 0;
  // If the elements are rows of tensors: these tensors, and the indices of the rows in order.
  // Otherwise null.
  virtual const RowSource* rows() const { return nullptr; }
  virtual StreamPtr<std::int64_t> indices(std::uint64_t) const { return nullptr; }

  virtual std::int64_t cardinality() const = 0;
  virtual Spec spec() const = 0;
  virtual AutoShardPolicy auto_shard_policy() const { return AutoShardPolicy::kAuto; }
  // The stage of a description (data/description.h). Adds the inputs to the writer. Throws
  // UnimplementedError if another program cannot run it.
  virtual proto::Stage describe(StageWriter& writer) const = 0;

  // The same pipeline over the files of one worker, in batches of its share of the global batch.
  // Null if the pipeline does not batch elements of files. The result is cached.
  std::shared_ptr<const DatasetNode> sharded(const FileShard& shard) const;
  virtual std::shared_ptr<const DatasetNode> shard_files(const FileShard&) const { return nullptr; }

  // The number of transformations from the source to this one. It enters the default seeds, so that
  // the random transformations of one pipeline differ. Places before this node are smaller.
  int depth() const { return depth_; }
  // The nodes that it transforms.
  virtual std::vector<NodePtr> inputs() const { return {}; }
  // Whether it has random numbers that depend on its place.
  virtual bool is_random() const { return false; }
  // A number for a pipeline that is made later, so that its places are not known; 0: it is no such
  // node.
  virtual std::uint64_t hidden() const { return 0; }
  // The same transformation of other inputs, at another place. REQUIRES: inputs, or is_random().
  virtual NodePtr moved(std::vector<NodePtr> inputs, const PlaceChange& change) const;
  // Enters the default seeds of later transformations, so that shards have different
  // random numbers; 0 for a whole pipeline and for shard 0.
  virtual std::uint64_t shard_seed() const { return 0; }
  std::uint64_t next_epoch() const { return next_epoch_.fetch_add(1, std::memory_order_relaxed); }

  template <class Item>
  StreamPtr<Item> open(std::uint64_t epoch) const {
    if constexpr (std::is_same_v<Item, Example>)
      return elements(epoch);
    else
      return indices(epoch);
  }

 private:
  int depth_;
  mutable std::atomic<std::uint64_t> next_epoch_{0};
  mutable std::mutex mutex_;  // guards the following
  const HeldAtFork held_at_fork_{mutex_};
  mutable std::optional<FileShard> shard_;
  mutable std::shared_ptr<const DatasetNode> sharded_;
};

// A transformation with one input. By default its elements have the input's spec and cardinality.
class InputNode : public DatasetNode {
 public:
  explicit InputNode(NodePtr input) : DatasetNode(input->depth() + 1), input_(std::move(input)) {}
  std::int64_t cardinality() const override { return input_->cardinality(); }
  Spec spec() const override { return input_->spec(); }
  AutoShardPolicy auto_shard_policy() const override { return input_->auto_shard_policy(); }
  std::uint64_t shard_seed() const override { return input_->shard_seed(); }
  std::vector<NodePtr> inputs() const override { return {input_}; }
  NodePtr moved(std::vector<NodePtr> inputs, const PlaceChange&) const override {
    return over(std::move(inputs[0]), FileShard());
  }
  const DatasetNode& input() const { return *input_; }
  NodePtr shard_files(const FileShard& shard) const override {
    NodePtr input = input_->shard_files(shard);
    return input ? over(std::move(input), shard) : nullptr;
  }

 private:
  // The same transformation over the elements of one worker.
  virtual NodePtr over(NodePtr input, const FileShard& shard) const = 0;

  NodePtr input_;
};

// The rows at `indices`. `rows` must outlive the stream.
StreamPtr<Example> row_stream(StreamPtr<std::int64_t> indices, const RowSource& rows);

// The datasets that a transformation joins. A random transformation that only a later one contains
// gets a place after those of the earlier ones.
struct JoinedDatasets {
  std::vector<NodePtr> inputs;
  int depth;  // of the transformation
};
JoinedDatasets join(std::vector<NodePtr> inputs);

// The same pipeline with its random transformations at other places.
NodePtr at_other_places(const NodePtr& node, const PlaceChange& change);

// The spec that holds for the elements of both; none if they differ in number or dtype.
Spec common_spec(const Spec& a, const Spec& b);

// The spec of elements like this one, with first axes of any size.
std::vector<ComponentSpec> spec_like(const Example& example);

// Detached copies on the host. Throws InvalidArgumentError for a symbolic tensor.
Example on_host(const Example& example);

// Create the nodes. Each checks its arguments.
NodePtr tensors_node(const Example& tensors);
NodePtr slices_node(const Example& tensors);
NodePtr range_node(std::int64_t start, std::int64_t stop, std::int64_t step);
// The numbers from `start` on, without end.
NodePtr count_node(std::int64_t start);
NodePtr generator_node(std::function<GeneratorFn()> make_generator,
                       const GeneratorOptions& options);
// `spec`: of the elements of all files, if it is known.
NodePtr files_node(std::vector<std::string> files, ReadFileFn read, Spec spec = std::nullopt);
// A source without random numbers, whose passes `open` begins.
NodePtr stream_node(std::function<StreamPtr<Example>()> open, Spec spec, std::int64_t cardinality);
NodePtr zip_node(std::vector<NodePtr> inputs);
NodePtr concatenate_node(NodePtr first, NodePtr second);
NodePtr map_node(NodePtr input, MapFn fn, MapOptions options);
NodePtr filter_node(NodePtr input, FilterFn fn);
NodePtr filter_node(NodePtr input, TensorFilterFn fn);
NodePtr shuffle_node(NodePtr input, std::int64_t buffer_size, ShuffleOptions options);
NodePtr batch_node(NodePtr input, std::int64_t batch_size, BatchOptions options);
NodePtr padded_batch_node(NodePtr input, std::int64_t batch_size,
                          const PaddedBatchOptions& options);
NodePtr bucket_node(NodePtr input, LengthFn length, std::vector<std::int64_t> boundaries,
                    std::vector<std::int64_t> batch_sizes, const BucketOptions& options);
NodePtr unbatch_node(NodePtr input);
NodePtr window_node(NodePtr input, std::int64_t size, WindowOptions options);
// `op`: "flat_map" or "interleave".
NodePtr interleave_node(const char* op, NodePtr input, DatasetMapFn fn, InterleaveOptions options);
NodePtr sample_node(std::vector<NodePtr> inputs, const SampleOptions& options);
NodePtr repeat_node(NodePtr input, std::int64_t count);
NodePtr take_node(NodePtr input, std::int64_t count);
NodePtr skip_node(NodePtr input, std::int64_t count);
NodePtr shard_node(NodePtr input, std::int64_t num_shards, std::int64_t index);
NodePtr cache_node(NodePtr input);
NodePtr prefetch_node(NodePtr input, std::int64_t buffer_size);
NodePtr prefetch_to_device_node(NodePtr input, std::string_view device, std::int64_t buffer_size);
NodePtr auto_shard_node(NodePtr input, AutoShardPolicy policy);
// The same for a description, with a function as a graph and the seed of the map that it describes.
NodePtr map_node(NodePtr input, std::shared_ptr<const GraphFunction> graph, MapOptions options,
                 std::uint64_t seed);
NodePtr filter_node(NodePtr input, std::shared_ptr<const GraphFunction> graph);
NodePtr files_node(std::vector<std::string> files, std::string_view format);

}  // namespace tandem::data
