// The implementation of a Dataset: one transformation of a pipeline, with its inputs.
#pragma once

#include <atomic>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "data/stream.h"

namespace tandem::data {

class GraphFunction;  // data/graph_function.h
class StageWriter;    // data/description.h
namespace proto {
class Stage;
}

using Spec = std::optional<std::vector<ComponentSpec>>;

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
  // the random transformations of one pipeline differ.
  int depth() const { return depth_; }
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
  mutable std::optional<FileShard> shard_;
  mutable std::shared_ptr<const DatasetNode> sharded_;
};

using NodePtr = std::shared_ptr<const DatasetNode>;

// A transformation with one input. By default its elements have the input's spec and cardinality.
class InputNode : public DatasetNode {
 public:
  explicit InputNode(NodePtr input) : DatasetNode(input->depth() + 1), input_(std::move(input)) {}
  std::int64_t cardinality() const override { return input_->cardinality(); }
  Spec spec() const override { return input_->spec(); }
  AutoShardPolicy auto_shard_policy() const override { return input_->auto_shard_policy(); }
  std::uint64_t shard_seed() const override { return input_->shard_seed(); }
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

// The seed of a random transformation: the given one, or one derived from the process's seed, the
// transformation's depth and the shard of its input.
std::uint64_t transformation_seed(const std::optional<std::uint64_t>& given,
                                  const DatasetNode& input);

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
NodePtr generator_node(std::function<GeneratorFn()> make_generator);
NodePtr files_node(std::vector<std::string> files, ReadFileFn read);
NodePtr zip_node(std::vector<NodePtr> inputs);
NodePtr concatenate_node(NodePtr first, NodePtr second);
NodePtr map_node(NodePtr input, MapFn fn, MapOptions options);
NodePtr filter_node(NodePtr input, FilterFn fn);
NodePtr filter_node(NodePtr input, TensorFilterFn fn);
NodePtr shuffle_node(NodePtr input, std::int64_t buffer_size, ShuffleOptions options);
NodePtr batch_node(NodePtr input, std::int64_t batch_size, BatchOptions options);
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
