// DataLoader: batches of examples in the order of a sampler.
#include "tandem/data_loader.h"

#include <algorithm>
#include <utility>

#include "core/status.h"
#include "data/description.h"
#include "tandem/array.h"
#include "tandem/creation.h"
#include "tandem/datasets.h"
#include "tandem/math.h"
#include "tandem/random.h"

namespace tandem::data {

Example MapDataset::get(std::size_t index) { return std::as_const(*this).get(index); }
Example MapDataset::get(std::size_t) const {
  throw UnimplementedError(
      "[MapDataset] expected a class with td::data::Example get(std::size_t index) const override");
}

// Rows of tensors, or a function from an index to an example.
class IndexedDataset::Source {
 public:
  Source(NodePtr slices) : slices_(std::move(slices)), size_(slices_->rows()->rows()) {}
  Source(std::int64_t size, std::function<Example(std::int64_t)> get)
      : get_(std::move(get)), size_(size) {}

  std::int64_t size() const { return size_; }
  const RowSource* rows() const { return slices_ ? slices_->rows() : nullptr; }
  Example at(std::int64_t index) const { return slices_ ? rows()->row(index) : get_(index); }

 private:
  NodePtr slices_;  // null if get_ makes the examples
  std::function<Example(std::int64_t)> get_;
  std::int64_t size_;
};

IndexedDataset IndexedDataset::from_tensor_slices(const Example& tensors) {
  return IndexedDataset(std::make_shared<Source>(slices_node(tensors)));
}

IndexedDataset::IndexedDataset(std::int64_t size, std::function<Example(std::int64_t)> get) {
  if (size < 0)
    fail<InvalidArgumentError>("[IndexedDataset] expected a size of at least 0, got {}", size);
  if (!get) fail<InvalidArgumentError>("[IndexedDataset] expected a function, got an empty one");
  source_ = std::make_shared<Source>(size, std::move(get));
}

std::int64_t IndexedDataset::size() const { return source_->size(); }

Example IndexedDataset::operator[](std::int64_t index) const {
  if (index < 0 || index >= size())
    fail<OutOfRangeError>("[IndexedDataset] expected an index of [0, {}), got {}", size(), index);
  return source_->at(index);
}

namespace {

using SourcePtr = std::shared_ptr<const IndexedDataset::Source>;

class IndexStream final : public ItemStream<std::int64_t> {
 public:
  IndexStream(std::vector<std::int64_t> indices, std::int64_t examples)
      : indices_(std::move(indices)), examples_(examples) {}
  bool next(std::int64_t& item) override {
    if (next_ == indices_.size()) return false;
    item = indices_[next_++];
    if (item < 0 || item >= examples_)
      fail<InvalidArgumentError>(
          "[DataLoader] expected the sampler to return indices of [0, {}), got {}", examples_,
          item);
    return true;
  }
  std::int64_t skip(std::int64_t count) override {
    const auto left = static_cast<std::int64_t>(indices_.size() - next_);
    const std::int64_t skipped = std::min(count, left);
    next_ += static_cast<std::size_t>(skipped);
    return skipped;
  }

 private:
  std::vector<std::int64_t> indices_;
  std::int64_t examples_;
  std::size_t next_ = 0;
};

// Indices as scalar int64 tensors, to be mapped to examples.
class IndexTensorStream final : public ItemStream<Example> {
 public:
  explicit IndexTensorStream(StreamPtr<std::int64_t> indices) : indices_(std::move(indices)) {}
  bool next(Example& item) override {
    std::int64_t index = 0;
    if (!indices_->next(index)) return false;
    item = Example(constant(index, {.dtype = int64}));
    return true;
  }
  std::int64_t skip(std::int64_t count) override { return indices_->skip(count); }

 private:
  StreamPtr<std::int64_t> indices_;
};

// The rows of a source in the order of a sampler. If the source is a function, the elements are the
// indices of its examples.
class SampledNode final : public DatasetNode {
 public:
  SampledNode(SourcePtr source, Sampler sampler)
      : DatasetNode(0), source_(std::move(source)), sampler_(std::move(sampler)) {}
  StreamPtr<Example> elements(std::uint64_t epoch) const override {
    if (rows()) return row_stream(indices(epoch), *rows());
    return std::make_unique<IndexTensorStream>(indices(epoch));
  }
  const RowSource* rows() const override { return source_->rows(); }
  StreamPtr<std::int64_t> indices(std::uint64_t epoch) const override {
    return std::make_unique<IndexStream>(sampler_.indices(epoch), source_->size());
  }
  std::int64_t cardinality() const override { return sampler_.size(); }
  Spec spec() const override {
    if (rows()) return rows()->spec();
    return std::vector<ComponentSpec>{{int64, Shape::scalar()}};
  }
  proto::Stage describe(StageWriter&) const override {
    refuse_stage("DataLoader", "its sampler is part of this program");
  }

 private:
  SourcePtr source_;
  Sampler sampler_;
};

Sampler sampler_of(const IndexedDataset& examples, const DataLoaderArguments& options) {
  if (options.sampler) {
    if (options.shuffle)
      fail<InvalidArgumentError>(
          "[DataLoader] expected either a sampler or shuffle, got both: the sampler decides the "
          "order");
    return *options.sampler;
  }
  if (options.shuffle) return RandomSampler(examples.size());
  return SequentialSampler(examples.size());
}

Dataset batches_of(const IndexedDataset& examples, const DataLoaderArguments& options) {
  if (options.num_workers < 0)
    fail<InvalidArgumentError>("[DataLoader] expected num_workers of at least 0, got {}",
                               options.num_workers);
  if (options.prefetch_factor < 1)
    fail<InvalidArgumentError>("[DataLoader] expected a prefetch_factor of at least 1, got {}",
                               options.prefetch_factor);
  const SourcePtr& source = examples.source();
  Dataset dataset(std::make_shared<SampledNode>(source, sampler_of(examples, options)));
  if (!source->rows())
    dataset = dataset.map(
        [source](const Example& number) { return source->at(number[0].item<std::int64_t>()); },
        {.num_parallel_calls = std::max(1, options.num_workers)});
  dataset = dataset.batch(options.batch_size, {.drop_remainder = options.drop_last});
  if (options.num_workers > 0)
    dataset = dataset.prefetch(std::int64_t{options.prefetch_factor} * options.num_workers);
  return dataset;
}

}  // namespace

std::int64_t detail::size_of_dataset(const datasets::DatasetBase& dataset) {
  const std::optional<std::size_t> size = dataset.size();
  if (!size)
    throw InvalidArgumentError("[IndexedDataset] expected a dataset whose size() is known");
  return static_cast<std::int64_t>(*size);
}

transforms::NormalizeData::NormalizeData(std::vector<double> mean, std::vector<double> stddev)
    : mean_(std::move(mean)), stddev_(std::move(stddev)) {
  if (mean_.empty() || mean_.size() != stddev_.size())
    fail<InvalidArgumentError>(
        "[Normalize] expected a mean and a standard deviation for each channel, got {} and {}",
        mean_.size(), stddev_.size());
}

LoadedExample transforms::NormalizeData::operator()(LoadedExample example) const {
  const Tensor& data = example.data;
  if (!data.defined() || !is_floating(data.dtype()))
    fail<InvalidArgumentError>("[Normalize] expected floating-point data, got {}",
                               data.defined() ? name_of(data.dtype()) : "none");
  Dims channels;
  if (mean_.size() > 1) {
    const auto expected = static_cast<std::int64_t>(mean_.size());
    if (data.rank() == 0 || data.size_word(0) != expected)
      fail<InvalidArgumentError>("[Normalize] expected data of {} channels, got shape {}", expected,
                                 data.shape().to_string());
    channels.push_back(expected);
    while (channels.size() < data.rank()) channels.push_back(1);
  }
  const auto moment = [&](const std::vector<double>& values) {
    return reshape(constant(values, {.dtype = data.dtype()}), Shape(channels));
  };
  example.data = (data - moment(mean_)) / moment(stddev_);
  return example;
}

datasets::MNIST::MNIST(const std::string& root, Mode mode) : mode_(mode) {
  const tandem::datasets::TrainTest both = tandem::datasets::mnist(root);
  const tandem::datasets::LabelledImages& part = is_train() ? both.train : both.test;
  const Shape& shape = part.images.shape();
  images_ =
      cast(reshape(part.images, {shape.word(0), 1, shape.word(1), shape.word(2)}), float32) / 255.0;
  targets_ = part.labels;
}

LoadedExample datasets::MNIST::get(std::size_t index) {
  const auto row = static_cast<std::int64_t>(index);
  return {images_[row], targets_[row]};
}

std::optional<std::size_t> datasets::MNIST::size() const {
  return static_cast<std::size_t>(targets_.size_word(0));
}

Subset::Subset(IndexedDataset examples, std::vector<std::int64_t> indices)
    : IndexedDataset(std::ssize(indices), [examples, indices](std::int64_t index) {
        return examples[indices[static_cast<std::size_t>(index)]];
      }) {}

std::vector<Subset> random_split(const IndexedDataset& examples,
                                 const std::vector<std::int64_t>& lengths) {
  std::int64_t all = 0;
  for (const std::int64_t length : lengths) {
    if (length < 0)
      fail<InvalidArgumentError>("[random_split] expected lengths of 0 or more, got {}", length);
    all += length;
  }
  if (all != examples.size())
    fail<InvalidArgumentError>("[random_split] expected lengths that sum to {}, got {}",
                               examples.size(), all);
  const auto order = random::permutation(all).to_vector<std::int64_t>();
  std::vector<Subset> parts;
  auto next = order.begin();
  for (const std::int64_t length : lengths) {
    parts.emplace_back(examples, std::vector<std::int64_t>(next, next + length));
    next += length;
  }
  return parts;
}

DataLoader::DataLoader(const IndexedDataset& examples, const DataLoaderArguments& options)
    : batches_(batches_of(examples, options)) {}

}  // namespace tandem::data
