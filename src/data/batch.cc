// Stacks consecutive elements into batches.
#include <cstring>

#include "core/status.h"
#include "data/batches.h"
#include "data/description.h"
#include "data/selection.h"
#include "tensor/tensor_impl.h"

namespace tandem::data {
namespace {

// Batches of rows of tensors. Copies each row once, directly into the batch.
class RowBatchStream final : public ItemStream<Example> {
 public:
  RowBatchStream(StreamPtr<std::int64_t> indices, const RowSource& rows, std::int64_t size,
                 bool drop_remainder)
      : indices_(std::move(indices)), rows_(rows), size_(size), drop_remainder_(drop_remainder) {}
  bool next(Example& item) override {
    batch_.clear();
    std::int64_t index;
    while (static_cast<std::int64_t>(batch_.size()) < size_ && indices_->next(index))
      batch_.push_back(index);
    if (batch_.empty() || (drop_remainder_ && static_cast<std::int64_t>(batch_.size()) < size_))
      return false;
    item = rows_.gather(batch_);
    return true;
  }
  std::int64_t skip(std::int64_t count) override {
    return skip_batches(*indices_, count, size_, drop_remainder_);
  }

 private:
  StreamPtr<std::int64_t> indices_;
  const RowSource& rows_;
  std::int64_t size_;
  bool drop_remainder_;
  std::vector<std::int64_t> batch_;
};

// One component of a batch. Each element is copied when it is produced, while it is in the cache.
class ComponentBatch {
 public:
  // A batch of up to `size` elements of the shape and dtype of `first`. `op` is for messages.
  ComponentBatch(const char* op, const Tensor& first, std::int64_t size)
      : op_(op),
        element_(first.shape()),
        dtype_(first.dtype()),
        size_(size),
        bytes_(impl_of(first).bytes()) {}

  void add(const Tensor& element, std::int64_t position, std::size_t component) {
    if (!(element.shape() == element_) || element.dtype() != dtype_)
      fail<InvalidArgumentError>(
          "[{}] expected elements of one shape and dtype: component {} is {} {} in the first "
          "element of the batch and {} {} in element {}",
          op_, component, name_of(dtype_), element_.to_string(), name_of(element.dtype()),
          element.shape().to_string(), position);
    if (position >= capacity_) grow(position);
    const Tensor local = copy_to_device(element, DeviceManager::get().host());
    if (bytes_ > 0)
      std::memcpy(impl_of(batch_).data() + static_cast<std::size_t>(position) * bytes_,
                  impl_of(local).data(), bytes_);
  }
  Tensor finish(std::int64_t count) {
    return count == capacity_ ? std::move(batch_) : make_view(batch_, element_.with_leading(count));
  }

 private:
  // Grows step by step, so that a batch size far beyond the dataset's size costs no memory.
  void grow(std::int64_t filled) {
    capacity_ = std::min(size_, std::max<std::int64_t>(256, 2 * capacity_));
    Tensor larger =
        make_tensor(DeviceManager::get().host(), element_.with_leading(capacity_), dtype_);
    if (filled > 0 && bytes_ > 0)
      std::memcpy(impl_of(larger).data(), impl_of(batch_).data(),
                  static_cast<std::size_t>(filled) * bytes_);
    batch_ = std::move(larger);
  }

  const char* op_;
  Shape element_;
  DType dtype_;
  std::int64_t size_, capacity_ = 0;
  std::size_t bytes_;
  Tensor batch_;
};

// A batch to which elements are added one by one.
class Stack {
 public:
  Stack(const char* op, std::int64_t size) : op_(op), size_(size) {}
  std::int64_t count() const { return count_; }
  void add(const Example& element) {
    if (count_ == 0)
      for (const Tensor& tensor : element) components_.emplace_back(op_, tensor, size_);
    if (element.size() != components_.size())
      fail<InvalidArgumentError>(
          "[{}] expected elements of {} components, got one of {} (element {} of the batch)", op_,
          components_.size(), element.size(), count_);
    for (std::size_t i = 0; i < components_.size(); ++i) components_[i].add(element[i], count_, i);
    ++count_;
  }
  Example finish() {
    Example batch;
    for (ComponentBatch& component : components_) batch.push_back(component.finish(count_));
    return batch;
  }

 private:
  const char* op_;
  std::int64_t size_, count_ = 0;
  std::vector<ComponentBatch> components_;
};

class BatchStream final : public ItemStream<Example> {
 public:
  BatchStream(StreamPtr<Example> input, std::int64_t size, bool drop_remainder)
      : input_(std::move(input)), size_(size), drop_remainder_(drop_remainder) {}
  bool next(Example& item) override {
    Stack batch("batch", size_);
    for (Example element; batch.count() < size_ && input_->next(element); batch.add(element))
      check_cancelled();
    if (batch.count() == 0 || (drop_remainder_ && batch.count() < size_)) return false;
    item = batch.finish();
    return true;
  }
  std::int64_t skip(std::int64_t count) override {
    return skip_batches(*input_, count, size_, drop_remainder_);
  }
  bool select(const Selection& of) override {
    const std::optional<Selection> elements = of.of_groups(size_);
    return elements && input_->select(*elements);
  }

 private:
  StreamPtr<Example> input_;
  std::int64_t size_;
  bool drop_remainder_;
};

class BatchNode final : public InputNode {
 public:
  BatchNode(NodePtr input, std::int64_t size, BatchOptions options)
      : InputNode(std::move(input)), size_(size), options_(options) {}
  StreamPtr<Example> elements(std::uint64_t epoch) const override {
    if (input().rows())
      return std::make_unique<RowBatchStream>(input().indices(epoch), *input().rows(), size_,
                                              options_.drop_remainder);
    return std::make_unique<BatchStream>(input().elements(epoch), size_, options_.drop_remainder);
  }
  std::int64_t cardinality() const override {
    const std::int64_t elements = input().cardinality();
    if (elements < 0) return elements;
    return elements / size_ + (!options_.drop_remainder && elements % size_ != 0 ? 1 : 0);
  }
  Spec spec() const override {
    Spec spec = input().spec();
    const std::int64_t elements = input().cardinality();
    const bool even = options_.drop_remainder || elements == kInfiniteCardinality ||
                      (elements >= 0 && elements % size_ == 0);
    if (spec)
      for (ComponentSpec& component : *spec)
        component.shape = component.shape.with_leading(even ? size_ : -1);
    return spec;
  }
  proto::Stage describe(StageWriter& writer) const override {
    proto::Stage stage = writer.stage(input());
    stage.mutable_batch()->set_size(size_);
    stage.mutable_batch()->set_drop_remainder(options_.drop_remainder);
    return stage;
  }
  NodePtr shard_files(const FileShard& shard) const override {
    FileShard inside = shard;
    inside.batched = true;
    NodePtr sharded = input().shard_files(inside);
    return sharded ? over(std::move(sharded), shard) : nullptr;
  }

 private:
  // The last batch() of a pipeline makes the global batches.
  NodePtr over(NodePtr input, const FileShard& shard) const override {
    if (shard.batched) return std::make_shared<BatchNode>(std::move(input), size_, options_);
    return std::make_shared<BatchNode>(std::move(input), batch_of_worker("batch", size_, shard),
                                       options_);
  }

  std::int64_t size_;
  BatchOptions options_;
};

}  // namespace

std::int64_t batch_of_worker(const char* op, std::int64_t size, const FileShard& shard) {
  std::int64_t mine = 0;
  for (std::int64_t replica = 0; replica < shard.local_replicas; ++replica)
    mine += size / shard.replicas + (shard.first_replica + replica < size % shard.replicas ? 1 : 0);
  if (mine == 0)
    fail<InvalidArgumentError>(
        "[{}] expected a global batch with an example for each of {} workers, got one of {}", op,
        shard.workers, size);
  return mine;
}

Example stacked(const char* op, std::span<const Example> elements) {
  Stack stack(op, std::ssize(elements));
  for (const Example& element : elements) stack.add(element);
  return stack.finish();
}

NodePtr batch_node(NodePtr input, std::int64_t batch_size, BatchOptions options) {
  if (batch_size < 1)
    fail<InvalidArgumentError>("[batch] expected a batch size of at least 1, got {}", batch_size);
  return std::make_shared<BatchNode>(std::move(input), batch_size, options);
}

}  // namespace tandem::data
