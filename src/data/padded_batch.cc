// Batches of elements of different sizes: padded_batch() and bucket_by_sequence_length().
#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/status.h"
#include "data/batches.h"
#include "data/description.h"
#include "tensor/tensor_impl.h"

namespace tandem::data {
namespace {

struct Padding {
  const char* op;  // for messages
  std::vector<Shape> shapes;
  std::vector<double> values;
};

// Writes `value` as an element of this dtype. Returns false if the dtype does not have it.
template <class T>
bool set_value(double value, std::byte* to) {
  T element{};
  if constexpr (std::is_integral_v<T>) {
    // Compared before the conversion, which must not overflow. 2^63 is no int64.
    if (!(value >= static_cast<double>(std::numeric_limits<T>::min()) && value < 0x1p63))
      return false;
    if constexpr (sizeof(T) < 8)
      if (value > static_cast<double>(std::numeric_limits<T>::max())) return false;
    element = static_cast<T>(value);
    if (static_cast<double>(element) != value) return false;
  } else {
    element = T(static_cast<float>(value));
    if constexpr (std::is_same_v<T, double>) element = value;
  }
  std::memcpy(to, &element, sizeof(T));
  return true;
}

bool set_value(DType dtype, double value, std::byte* to) {
  switch (dtype) {
    case DType::kFloat32: return set_value<float>(value, to);
    case DType::kFloat64: return set_value<double>(value, to);
    case DType::kFloat16: return set_value<Half>(value, to);
    case DType::kBFloat16: return set_value<BFloat16>(value, to);
    case DType::kInt32: return set_value<std::int32_t>(value, to);
    case DType::kInt64: return set_value<std::int64_t>(value, to);
    case DType::kUInt8: return set_value<std::uint8_t>(value, to);
    case DType::kBool: return set_value<bool>(value, to);
    case DType::kInt8: return set_value<std::int8_t>(value, to);
    case DType::kInt16: return set_value<std::int16_t>(value, to);
    case DType::kUInt16: return set_value<std::uint16_t>(value, to);
    case DType::kUInt32: return set_value<std::uint32_t>(value, to);
    case DType::kUInt64: return set_value<std::uint64_t>(value, to);
    case DType::kFloat8E4M3FN: return set_value<Float8E4M3FN>(value, to);
    case DType::kFloat8E5M2: return set_value<Float8E5M2>(value, to);
  }
  return false;
}

// Sets all elements of a tensor.
void fill(const Padding& padding, std::size_t component, const Tensor& tensor) {
  const std::vector<double>& values = padding.values;
  const double value = values.empty() ? 0.0 : values[values.size() == 1 ? 0 : component];
  const std::size_t size = size_of(tensor.dtype()), bytes = impl_of(tensor).bytes();
  std::byte element[8]{};
  if (!set_value(tensor.dtype(), value, element))
    fail<InvalidArgumentError>("[{}] component {} is {}, which has no padding value {}", padding.op,
                               component, name_of(tensor.dtype()), value);
  std::byte* const to = impl_of(tensor).data();
  for (std::size_t at = 0; at < bytes; at += size) std::memcpy(to + at, element, size);
}

// The shape of a component that all elements fit into.
Shape padded_shape(const Padding& padding, std::size_t component,
                   std::span<const Example> elements) {
  const Shape& first = elements[0][component].shape();
  Dims sizes;
  for (const std::int64_t size : first.words()) sizes.push_back(size);
  for (const Example& element : elements) {
    const Shape& shape = element[component].shape();
    if (shape.rank() != first.rank() ||
        element[component].dtype() != elements[0][component].dtype())
      fail<InvalidArgumentError>(
          "[{}] expected elements of one rank and dtype: component {} is {} {} in the first "
          "element "
          "of the batch and {} {} in another one",
          padding.op, component, name_of(elements[0][component].dtype()), first.to_string(),
          name_of(element[component].dtype()), shape.to_string());
    for (int axis = 0; axis < shape.rank(); ++axis)
      sizes[axis] = std::max(sizes[axis], shape.word(axis));
  }
  if (padding.shapes.empty()) return Shape(sizes);
  const Shape& wanted = padding.shapes[component];
  if (wanted.rank() != first.rank())
    fail<InvalidArgumentError>("[{}] expected padded_shapes[{}] of {} axes, got {}", padding.op,
                               component, first.rank(), wanted.to_string());
  for (int axis = 0; axis < wanted.rank(); ++axis) {
    if (wanted.word(axis) < 0) continue;
    if (sizes[axis] > wanted.word(axis))
      fail<InvalidArgumentError>(
          "[{}] Attempted to pad to a smaller size than the input element: component {} has size "
          "{} in axis {}, padded_shapes has {}",
          padding.op, component, sizes[axis], axis, wanted.word(axis));
    sizes[axis] = wanted.word(axis);
  }
  return Shape(sizes);
}

// Writes an element at the beginning of a larger one.
void copy_into(const Tensor& element, const Shape& shape, std::byte* to) {
  const Tensor local = copy_to_device(element, DeviceManager::get().host());
  const std::byte* from = impl_of(local).data();
  const std::size_t bytes = impl_of(local).bytes();
  if (bytes == 0) return;
  if (local.shape() == shape) {
    std::memcpy(to, from, bytes);
    return;
  }
  const int axes = shape.rank();
  const std::size_t size = size_of(local.dtype());
  const std::size_t row = static_cast<std::size_t>(local.size_word(axes - 1)) * size;
  Dims index;
  for (int axis = 0; axis < axes; ++axis) index.push_back(0);
  for (std::size_t done = 0; done < bytes; done += row) {
    std::int64_t at = 0;
    for (int axis = 0; axis < axes; ++axis) at = at * shape.word(axis) + index[axis];
    std::memcpy(to + static_cast<std::size_t>(at) * size, from + done, row);
    for (int axis = axes - 2; axis >= 0 && ++index[axis] == local.size_word(axis); --axis)
      index[axis] = 0;
  }
}

Example padded(const Padding& padding, std::span<const Example> elements) {
  const std::size_t components = elements[0].size();
  for (const Example& element : elements)
    if (element.size() != components)
      fail<InvalidArgumentError>("[{}] expected elements of {} components, got one of {}",
                                 padding.op, components, element.size());
  const auto expect_count = [&](std::size_t count, const char* what) {
    if (count != components)
      fail<InvalidArgumentError>("[{}] expected {} for {} components, got {}", padding.op, what,
                                 components, count);
  };
  if (!padding.shapes.empty()) expect_count(padding.shapes.size(), "padded_shapes");
  if (padding.values.size() > 1) expect_count(padding.values.size(), "padding_values");
  Example batch;
  for (std::size_t i = 0; i < components; ++i) {
    const Shape shape = padded_shape(padding, i, elements);
    const Tensor tensor =
        make_tensor(DeviceManager::get().host(), shape.with_leading(std::ssize(elements)),
                    elements[0][i].dtype());
    fill(padding, i, tensor);
    const std::size_t bytes = impl_of(tensor).bytes() / elements.size();
    std::byte* to = impl_of(tensor).data();
    for (const Example& element : elements) {
      copy_into(element[i], shape, to);
      to += bytes;
    }
    batch.push_back(tensor);
  }
  return batch;
}

// --- padded_batch ---

class PaddedBatchStream final : public ItemStream<Example> {
 public:
  PaddedBatchStream(StreamPtr<Example> input, std::int64_t size, const PaddedBatchOptions& options)
      : input_(std::move(input)),
        size_(size),
        padding_{"padded_batch", options.padded_shapes, options.padding_values},
        drop_remainder_(options.drop_remainder) {}
  bool next(Example& item) override {
    std::vector<Example> elements;
    for (Example element; std::ssize(elements) < size_ && input_->next(element);) {
      elements.push_back(std::move(element));
      check_cancelled();
    }
    if (elements.empty() || (drop_remainder_ && std::ssize(elements) < size_)) return false;
    item = padded(padding_, elements);
    return true;
  }
  std::int64_t skip(std::int64_t count) override {
    return skip_batches(*input_, count, size_, drop_remainder_);
  }

 private:
  StreamPtr<Example> input_;
  std::int64_t size_;
  Padding padding_;
  bool drop_remainder_;
};

class PaddedBatchNode final : public InputNode {
 public:
  PaddedBatchNode(NodePtr input, std::int64_t size, const PaddedBatchOptions& options)
      : InputNode(std::move(input)), size_(size), options_(options) {}
  StreamPtr<Example> elements(std::uint64_t epoch) const override {
    return std::make_unique<PaddedBatchStream>(input().elements(epoch), size_, options_);
  }
  std::int64_t cardinality() const override {
    const std::int64_t elements = input().cardinality();
    if (elements < 0) return elements;
    return elements / size_ + (!options_.drop_remainder && elements % size_ != 0 ? 1 : 0);
  }
  Spec spec() const override {
    Spec spec = input().spec();
    if (!spec || (!options_.padded_shapes.empty() && options_.padded_shapes.size() != spec->size()))
      return std::nullopt;
    for (std::size_t i = 0; i < spec->size(); ++i) {
      Shape shape = (*spec)[i].shape;
      if (!options_.padded_shapes.empty()) {
        const Shape& wanted = options_.padded_shapes[i];
        if (wanted.rank() != shape.rank()) return std::nullopt;
        for (int axis = 0; axis < shape.rank(); ++axis)
          if (wanted.word(axis) >= 0) shape.set(axis, wanted.word(axis));
      }
      (*spec)[i].shape = shape.with_leading(options_.drop_remainder ? size_ : -1);
    }
    return spec;
  }
  proto::Stage describe(StageWriter&) const override {
    refuse_stage("padded_batch", "the messages have no such stage");
  }
  NodePtr shard_files(const FileShard& shard) const override {
    FileShard inside = shard;
    inside.batched = true;
    NodePtr sharded = input().shard_files(inside);
    return sharded ? over(std::move(sharded), shard) : nullptr;
  }

 private:
  // The last batch of a pipeline is the global batch.
  NodePtr over(NodePtr input, const FileShard& shard) const override {
    const std::int64_t size = shard.batched ? size_ : batch_of_worker("padded_batch", size_, shard);
    return std::make_shared<PaddedBatchNode>(std::move(input), size, options_);
  }

  std::int64_t size_;
  PaddedBatchOptions options_;
};

// --- bucket_by_sequence_length ---

struct Buckets {
  LengthFn length;
  std::vector<std::int64_t> boundaries, batch_sizes;
  BucketOptions options;
};

class BucketStream final : public ItemStream<Example> {
 public:
  BucketStream(StreamPtr<Example> input, const Buckets& buckets)
      : input_(std::move(input)), buckets_(buckets), waiting_(buckets.batch_sizes.size()) {}
  bool next(Example& item) override { return advance(&item); }
  std::int64_t skip(std::int64_t count) override {
    std::int64_t skipped = 0;
    while (skipped < count && advance(nullptr)) ++skipped;
    return skipped;
  }

 private:
  bool advance(Example* item) {
    for (Example element; !ended_; check_cancelled()) {
      if (!input_->next(element)) {
        ended_ = true;
        break;
      }
      const std::size_t bucket = bucket_of(element);
      waiting_[bucket].push_back(std::move(element));
      if (std::ssize(waiting_[bucket]) == buckets_.batch_sizes[bucket]) return emit(bucket, item);
    }
    if (buckets_.options.drop_remainder) return false;
    for (std::size_t bucket = 0; bucket < waiting_.size(); ++bucket)
      if (!waiting_[bucket].empty()) return emit(bucket, item);
    return false;
  }
  std::size_t bucket_of(const Example& element) const {
    const std::vector<std::int64_t>& boundaries = buckets_.boundaries;
    const std::int64_t length = buckets_.length(element);
    const auto above = std::upper_bound(boundaries.begin(), boundaries.end(), length);
    if (buckets_.options.pad_to_bucket_boundary && above == boundaries.end())
      fail<InvalidArgumentError>(
          "[bucket_by_sequence_length] expected lengths below {}, the last boundary, since "
          "pad_to_bucket_boundary is set; got {}",
          boundaries.back(), length);
    return static_cast<std::size_t>(above - boundaries.begin());
  }
  bool emit(std::size_t bucket, Example* item) {
    const std::vector<Example> elements = std::exchange(waiting_[bucket], {});
    if (!item) return true;
    const BucketOptions& options = buckets_.options;
    Padding padding{"bucket_by_sequence_length", options.padded_shapes, options.padding_values};
    if (options.no_padding) {
      *item = stacked(padding.op, elements);
      return true;
    }
    if (options.pad_to_bucket_boundary)
      pad_to(buckets_.boundaries[bucket] - 1, elements[0], padding);
    *item = padded(padding, elements);
    return true;
  }
  // Sets the sizes that no shape gives.
  static void pad_to(std::int64_t length, const Example& element, Padding& padding) {
    if (padding.shapes.empty())
      for (const Tensor& component : element) {
        Shape any = component.shape();
        for (int axis = 0; axis < any.rank(); ++axis) any.set(axis, -1);
        padding.shapes.push_back(any);
      }
    for (Shape& shape : padding.shapes)
      for (int axis = 0; axis < shape.rank(); ++axis)
        if (shape.word(axis) < 0) shape.set(axis, length);
  }

  StreamPtr<Example> input_;
  const Buckets& buckets_;
  std::vector<std::vector<Example>> waiting_;  // by bucket
  bool ended_ = false;
};

class BucketNode final : public InputNode {
 public:
  BucketNode(NodePtr input, Buckets buckets)
      : InputNode(std::move(input)), buckets_(std::move(buckets)) {}
  StreamPtr<Example> elements(std::uint64_t epoch) const override {
    return std::make_unique<BucketStream>(input().elements(epoch), buckets_);
  }
  std::int64_t cardinality() const override {
    const std::int64_t elements = input().cardinality();
    return elements <= 0 ? elements : kUnknownCardinality;
  }
  Spec spec() const override { return std::nullopt; }
  proto::Stage describe(StageWriter&) const override {
    refuse_stage("bucket_by_sequence_length", "its function is part of this program");
  }
  // Its batches have no size that could be split.
  NodePtr shard_files(const FileShard& shard) const override {
    return shard.batched ? InputNode::shard_files(shard) : nullptr;
  }

 private:
  NodePtr over(NodePtr input, const FileShard&) const override {
    return std::make_shared<BucketNode>(std::move(input), buckets_);
  }

  Buckets buckets_;
};

}  // namespace

NodePtr padded_batch_node(NodePtr input, std::int64_t batch_size,
                          const PaddedBatchOptions& options) {
  if (batch_size < 1)
    fail<InvalidArgumentError>("[padded_batch] expected a batch size of at least 1, got {}",
                               batch_size);
  return std::make_shared<PaddedBatchNode>(std::move(input), batch_size, options);
}

NodePtr bucket_node(NodePtr input, LengthFn length, std::vector<std::int64_t> boundaries,
                    std::vector<std::int64_t> batch_sizes, const BucketOptions& options) {
  constexpr const char* kOp = "bucket_by_sequence_length";
  if (!length) fail<InvalidArgumentError>("[{}] expected a function, got an empty one", kOp);
  if (batch_sizes.size() != boundaries.size() + 1)
    fail<InvalidArgumentError>(
        "[{}] expected one batch size more than boundaries, got {} sizes and {} boundaries", kOp,
        batch_sizes.size(), boundaries.size());
  for (const std::int64_t size : batch_sizes)
    if (size < 1)
      fail<InvalidArgumentError>("[{}] expected batch sizes of at least 1, got {}", kOp, size);
  if (!boundaries.empty() && boundaries[0] < 1)
    fail<InvalidArgumentError>("[{}] expected boundaries of at least 1, got {}", kOp,
                               boundaries[0]);
  for (std::size_t i = 1; i < boundaries.size(); ++i)
    if (boundaries[i] <= boundaries[i - 1])
      fail<InvalidArgumentError>("[{}] expected increasing boundaries, got {} after {}", kOp,
                                 boundaries[i], boundaries[i - 1]);
  if (options.pad_to_bucket_boundary && (boundaries.empty() || options.no_padding))
    fail<InvalidArgumentError>("[{}] pad_to_bucket_boundary needs boundaries, and padding", kOp);
  return std::make_shared<BucketNode>(
      std::move(input),
      Buckets{std::move(length), std::move(boundaries), std::move(batch_sizes), options});
}

}  // namespace tandem::data
