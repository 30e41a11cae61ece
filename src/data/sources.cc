// Sources of elements: tensors in memory, and generators.
#include <algorithm>
#include <cstring>
#include <limits>

#include "core/parallel.h"
#include "core/status.h"
#include "data/description.h"
#include "graph/graph.h"
#include "tensor/tensor_impl.h"

namespace tandem::data {

Example on_host(const Example& example) {
  Example copy;
  for (const Tensor& tensor : example) {
    // A symbolic tensor has no elements. It would also keep its graph alive, which may in turn hold
    // the dataset.
    if (is_symbolic(tensor))
      fail<InvalidArgumentError>(
          "[Dataset] expected tensors with elements, got one that td::function or a GraphScope "
          "computes; make the dataset outside, or of concrete tensors");
    copy.push_back(copy_to_device(make_alias(tensor), DeviceManager::get().host()));
  }
  return copy;
}

std::vector<ComponentSpec> RowSource::spec() const {
  std::vector<ComponentSpec> spec;
  for (const Tensor& tensor : tensors_)
    spec.push_back({tensor.dtype(), tensor.shape().without_leading(1)});
  return spec;
}

Example RowSource::row(std::int64_t index) const {
  std::vector<Tensor> views;
  views.reserve(tensors_.size());
  for (const Tensor& tensor : tensors_) {
    const Shape shape = tensor.shape().without_leading(1);
    const auto bytes = shape.num_elements() * static_cast<std::int64_t>(size_of(tensor.dtype()));
    views.push_back(make_view(tensor, shape, index * bytes));
  }
  return Example(std::move(views));
}

Example RowSource::gather(std::span<const std::int64_t> indices) const {
  constexpr std::int64_t kAlignment = 64, kGrainBytes = 64 * 1024;
  const auto count = static_cast<std::int64_t>(indices.size());
  bool consecutive = true;
  for (std::size_t i = 1; i < indices.size(); ++i)
    consecutive = consecutive && indices[i] == indices[i - 1] + 1;
  std::vector<Tensor> batch;
  batch.reserve(tensors_.size());
  for (const Tensor& tensor : tensors_) {
    Shape shape = tensor.shape();
    shape.set(0, count);
    const auto row = shape.without_leading(1).num_elements() *
                     static_cast<std::int64_t>(size_of(tensor.dtype()));
    // Unaligned rows are copied: kernels on aligned memory save more time than the copy costs.
    if (consecutive && indices[0] * row % kAlignment == 0) {
      batch.push_back(make_view(tensor, shape, indices[0] * row));
      continue;
    }
    Tensor rows = make_tensor(impl_of(tensor).device(), shape, tensor.dtype());
    const std::byte* from = impl_of(tensor).data();
    std::byte* to = impl_of(rows).data();
    parallel_for(count, std::max<std::int64_t>(1, kGrainBytes / std::max<std::int64_t>(row, 1)),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t i = begin; i < end; ++i)
                     std::memcpy(to + i * row, from + indices[static_cast<std::size_t>(i)] * row,
                                 static_cast<std::size_t>(row));
                 });
    batch.push_back(std::move(rows));
  }
  return Example(std::move(batch));
}

namespace {

class RowStream final : public ItemStream<Example> {
 public:
  RowStream(StreamPtr<std::int64_t> indices, const RowSource& rows)
      : indices_(std::move(indices)), rows_(rows) {}
  bool next(Example& item) override {
    std::int64_t index = 0;
    if (!indices_->next(index)) return false;
    item = rows_.row(index);
    return true;
  }
  std::int64_t skip(std::int64_t count) override { return indices_->skip(count); }

 private:
  StreamPtr<std::int64_t> indices_;
  const RowSource& rows_;
};

class CountingStream final : public ItemStream<std::int64_t> {
 public:
  explicit CountingStream(std::int64_t count) : count_(count) {}
  bool next(std::int64_t& item) override {
    if (next_ == count_) return false;
    item = next_++;
    return true;
  }
  std::int64_t skip(std::int64_t count) override {
    const std::int64_t skipped = std::min(count, count_ - next_);
    next_ += skipped;
    return skipped;
  }

 private:
  std::int64_t count_, next_ = 0;
};

class SlicesNode final : public DatasetNode {
 public:
  explicit SlicesNode(std::vector<Tensor> tensors) : DatasetNode(0), rows_(std::move(tensors)) {}
  StreamPtr<Example> elements(std::uint64_t epoch) const override {
    return row_stream(indices(epoch), rows_);
  }
  const RowSource* rows() const override { return &rows_; }
  StreamPtr<std::int64_t> indices(std::uint64_t) const override {
    return std::make_unique<CountingStream>(rows_.rows());
  }
  std::int64_t cardinality() const override { return rows_.rows(); }
  Spec spec() const override { return rows_.spec(); }
  proto::Stage describe(StageWriter& writer) const override {
    proto::Stage stage = writer.stage();
    writer.set_tensors(rows_.tensors(), *stage.mutable_from_tensor_slices());
    return stage;
  }

 private:
  RowSource rows_;
};

class OnceStream final : public ItemStream<Example> {
 public:
  explicit OnceStream(Example example) : example_(std::move(example)) {}
  bool next(Example& item) override {
    if (done_) return false;
    done_ = true;
    item = std::move(example_);
    return true;
  }

 private:
  Example example_;
  bool done_ = false;
};

class TensorsNode final : public DatasetNode {
 public:
  explicit TensorsNode(Example example) : DatasetNode(0), example_(std::move(example)) {}
  StreamPtr<Example> elements(std::uint64_t) const override {
    return std::make_unique<OnceStream>(example_);
  }
  std::int64_t cardinality() const override { return 1; }
  Spec spec() const override {
    Spec spec(std::in_place);
    for (const Tensor& tensor : example_) spec->push_back({tensor.dtype(), tensor.shape()});
    return spec;
  }
  proto::Stage describe(StageWriter& writer) const override {
    proto::Stage stage = writer.stage();
    writer.set_tensors(example_.components(), *stage.mutable_from_tensors());
    return stage;
  }

 private:
  Example example_;
};

// An arithmetic sequence of int64 scalars.
struct Sequence {
  std::int64_t start, step;
  std::int64_t count;  // kInfiniteCardinality: without end
};

class SequenceStream final : public ItemStream<Example> {
 public:
  explicit SequenceStream(const Sequence& sequence) : sequence_(sequence) {}
  bool next(Example& item) override {
    if (position_ == sequence_.count) return false;
    Tensor number = make_tensor(DeviceManager::get().host(), Shape::scalar(), int64);
    // Wraps around as int64 does in TensorFlow.
    const std::uint64_t value =
        static_cast<std::uint64_t>(sequence_.start) +
        static_cast<std::uint64_t>(sequence_.step) * static_cast<std::uint64_t>(position_++);
    std::memcpy(impl_of(number).data(), &value, sizeof(value));
    item = Example(std::move(number));
    return true;
  }
  std::int64_t skip(std::int64_t count) override {
    const std::int64_t end =
        sequence_.count < 0 ? std::numeric_limits<std::int64_t>::max() : sequence_.count;
    const std::int64_t skipped = std::min(count, end - position_);
    position_ += skipped;
    return skipped;
  }

 private:
  Sequence sequence_;
  std::int64_t position_ = 0;
};

class SequenceNode final : public DatasetNode {
 public:
  explicit SequenceNode(const Sequence& sequence) : DatasetNode(0), sequence_(sequence) {}
  StreamPtr<Example> elements(std::uint64_t) const override {
    return std::make_unique<SequenceStream>(sequence_);
  }
  std::int64_t cardinality() const override { return sequence_.count; }
  Spec spec() const override {
    return std::vector<ComponentSpec>{{.dtype = int64, .shape = Shape::scalar()}};
  }
  proto::Stage describe(StageWriter& writer) const override {
    constexpr std::int64_t kMaxSent = 1 << 20;
    if (sequence_.count < 0) refuse_stage("enumerate", "its numbers have no end");
    if (sequence_.count > kMaxSent)
      refuse_stage("range", "it has more than a million numbers, which are sent as a tensor");
    Tensor numbers = make_tensor(DeviceManager::get().host(), Shape{sequence_.count}, int64);
    auto* const to = reinterpret_cast<std::int64_t*>(impl_of(numbers).data());
    for (std::int64_t i = 0; i < sequence_.count; ++i) to[i] = sequence_.start + i * sequence_.step;
    proto::Stage stage = writer.stage();
    writer.set_tensors({&numbers, 1}, *stage.mutable_from_tensor_slices());
    return stage;
  }

 private:
  Sequence sequence_;
};

// The components that the options describe; none: not known.
Spec spec_of(const GeneratorOptions& options) {
  std::vector<ComponentSpec> spec;
  const bool listed = !options.output_types.empty() || !options.output_shapes.empty();
  if (listed && !options.output_signature.empty())
    throw InvalidArgumentError(
        "[from_generator] The `output_types` and `output_shapes` arguments may not be provided "
        "when an `output_signature` is provided: expected one of both, got both");
  if (!options.output_shapes.empty() && options.output_shapes.size() != options.output_types.size())
    fail<InvalidArgumentError>(
        "[from_generator] expected an output_types and an output_shapes of each component, got {} "
        "and {}",
        options.output_types.size(), options.output_shapes.size());
  for (std::size_t i = 0; i < options.output_types.size(); ++i)
    spec.push_back({options.output_types[i],
                    options.output_shapes.empty() ? Shape() : options.output_shapes[i]});
  for (const InputSpec& input : options.output_signature)
    spec.push_back({input.dtype, input.shape});
  if (spec.empty()) return std::nullopt;
  return spec;
}

void expect_generated(const Example& example, const std::vector<ComponentSpec>& spec) {
  if (example.size() != spec.size())
    fail<InvalidArgumentError>("[from_generator] expected examples of {} components, got {}",
                               spec.size(), example.size());
  for (std::size_t i = 0; i < spec.size(); ++i) {
    if (example[i].dtype() != spec[i].dtype)
      fail<InvalidArgumentError>(
          "[from_generator] `generator` yielded an element of dtype {} where an element of dtype "
          "{} was expected",
          name_of(example[i].dtype()), name_of(spec[i].dtype));
    if (!spec[i].shape.matches(example[i].shape()))
      fail<InvalidArgumentError>(
          "[from_generator] `generator` yielded an element of shape {} where an element of shape "
          "{} was expected",
          example[i].shape().to_string(), spec[i].shape.to_string());
  }
}

class GeneratorStream final : public ItemStream<Example> {
 public:
  GeneratorStream(const std::function<GeneratorFn()>& make, const Spec& spec)
      : make_(make), spec_(spec) {}
  bool next(Example& item) override {
    if (done_) return false;
    if (!generator_) generator_ = make_();
    std::optional<Example> example = generator_();
    if (!example) {
      done_ = true;
      return false;
    }
    if (spec_) expect_generated(*example, *spec_);
    item = std::move(*example);
    return true;
  }

 private:
  const std::function<GeneratorFn()>& make_;
  const Spec& spec_;
  GeneratorFn generator_;
  bool done_ = false;
};

class GeneratorNode final : public DatasetNode {
 public:
  GeneratorNode(std::function<GeneratorFn()> make, Spec spec)
      : DatasetNode(0), make_(std::move(make)), spec_(std::move(spec)) {}
  StreamPtr<Example> elements(std::uint64_t) const override {
    return std::make_unique<GeneratorStream>(make_, spec_);
  }
  std::int64_t cardinality() const override { return kUnknownCardinality; }
  Spec spec() const override {
    const auto known = [](const ComponentSpec& component) { return component.shape.known(); };
    return spec_ && std::ranges::all_of(*spec_, known) ? spec_ : std::nullopt;
  }
  proto::Stage describe(StageWriter&) const override {
    refuse_stage("from_generator", "its function is part of this program");
  }

 private:
  std::function<GeneratorFn()> make_;
  Spec spec_;
};

class StreamNode final : public DatasetNode {
 public:
  StreamNode(std::function<StreamPtr<Example>()> open, Spec spec, std::int64_t cardinality)
      : DatasetNode(0), open_(std::move(open)), spec_(std::move(spec)), cardinality_(cardinality) {}
  StreamPtr<Example> elements(std::uint64_t) const override { return open_(); }
  std::int64_t cardinality() const override { return cardinality_; }
  Spec spec() const override { return spec_; }
  proto::Stage describe(StageWriter&) const override {
    refuse_stage("Dataset", "the messages have no such source");
  }

 private:
  std::function<StreamPtr<Example>()> open_;
  Spec spec_;
  std::int64_t cardinality_;
};

}  // namespace

NodePtr stream_node(std::function<StreamPtr<Example>()> open, Spec spec, std::int64_t cardinality) {
  return std::make_shared<StreamNode>(std::move(open), std::move(spec), cardinality);
}

StreamPtr<Example> row_stream(StreamPtr<std::int64_t> indices, const RowSource& rows) {
  return std::make_unique<RowStream>(std::move(indices), rows);
}

NodePtr tensors_node(const Example& tensors) {
  if (tensors.empty())
    fail<InvalidArgumentError>("[from_tensors] expected at least one tensor, got none");
  return std::make_shared<TensorsNode>(on_host(tensors));
}

NodePtr slices_node(const Example& tensors) {
  if (tensors.empty())
    fail<InvalidArgumentError>("[from_tensor_slices] expected at least one tensor, got none");
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i].rank() == 0)
      fail<InvalidArgumentError>(
          "[from_tensor_slices] expected tensors of at least one axis, got a scalar as component "
          "{}",
          i);
    if (tensors[i].size_word(0) != tensors[0].size_word(0))
      fail<InvalidArgumentError>(
          "[from_tensor_slices] expected first axes of one size, got {} (component 0, shape {}) "
          "and {} (component {}, shape {})",
          tensors[0].size_word(0), tensors[0].shape().to_string(), tensors[i].size_word(0), i,
          tensors[i].shape().to_string());
  }
  return std::make_shared<SlicesNode>(on_host(tensors).components());
}

NodePtr range_node(std::int64_t start, std::int64_t stop, std::int64_t step) {
  if (step == 0) fail<InvalidArgumentError>("[range] expected a step other than 0");
  // The distance of two int64 fits in a uint64.
  const bool up = step > 0;
  std::int64_t count = 0;
  if (up ? start < stop : start > stop) {
    const auto from = static_cast<std::uint64_t>(up ? start : stop);
    const auto to = static_cast<std::uint64_t>(up ? stop : start);
    const std::uint64_t width =
        up ? static_cast<std::uint64_t>(step) : std::uint64_t{0} - static_cast<std::uint64_t>(step);
    const std::uint64_t steps = (to - from - 1) / width + 1;
    if (steps > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
      fail<InvalidArgumentError>("[range] expected less than 2^63 numbers, got {} from {} to {}",
                                 steps, start, stop);
    count = static_cast<std::int64_t>(steps);
  }
  return std::make_shared<SequenceNode>(Sequence{.start = start, .step = step, .count = count});
}

NodePtr count_node(std::int64_t start) {
  return std::make_shared<SequenceNode>(
      Sequence{.start = start, .step = 1, .count = kInfiniteCardinality});
}

NodePtr generator_node(std::function<GeneratorFn()> make_generator,
                       const GeneratorOptions& options) {
  if (!make_generator)
    fail<InvalidArgumentError>("[from_generator] expected a function, got an empty one");
  return std::make_shared<GeneratorNode>(std::move(make_generator), spec_of(options));
}

}  // namespace tandem::data
