// Dataset and Iterator: the public handles of nodes and streams.
#include <ostream>

#include "core/available_cores.h"
#include "core/status.h"
#include "data/node.h"
#include "runtime/trace.h"

namespace tandem {

const Tensor* detail::components_for(const char* stage, const data::Example& element,
                                     std::size_t count) {
  if (element.size() != count)
    fail<InvalidArgumentError>(
        "[{}] the function takes {} tensors, got an element of {} components", stage, count,
        element.size());
  return element.components().data();
}

}  // namespace tandem

namespace tandem::data {
namespace {

// Writes the items as "(a, b)".
template <class Items>
std::ostream& print_list(std::ostream& out, const Items& items) {
  out << '(';
  const char* separator = "";
  for (const auto& item : items) {
    out << separator << item;
    separator = ", ";
  }
  return out << ')';
}

}  // namespace

const Tensor* Example::only() const {
  if (size() != 1)
    fail<InvalidArgumentError>(
        "[Example] expected one component where a tensor is expected, got {}: use example[0], "
        "example[1], ...",
        size());
  return components_.data();
}

const Tensor* Example::pair() const {
  if (size() != 2)
    fail<InvalidArgumentError>(
        "[Example] expected two components for `auto [x, y]`, got {}: use example[0], example[1], "
        "...",
        size());
  return components_.data();
}

std::ostream& operator<<(std::ostream& out, const Example& example) {
  return print_list(out, example);
}

const Example& NextExample::value() const {
  if (!has_value()) fail<OutOfRangeError>("[Iterator] the dataset has no next element");
  return **this;
}

std::ostream& operator<<(std::ostream& out, const ComponentSpec& spec) {
  return out << spec.dtype << ' ' << spec.shape;
}

const std::vector<ComponentSpec>& ElementSpec::value() const {
  if (!has_value())
    fail<FailedPreconditionError>(
        "[element_spec] the dtypes and shapes of the elements are not known before one is "
        "produced, as after map() and from_generator(): use iterate().element_spec(), which takes "
        "those of the first element");
  return **this;
}

const ComponentSpec& ElementSpec::operator[](std::size_t index) const {
  return value()[tandem::detail::checked_index("element_spec", index, value().size())];
}

std::ostream& operator<<(std::ostream& out, const ElementSpec& spec) {
  return spec ? print_list(out, *spec) : out << "unknown";
}

const Tensor& NextExample::operator[](std::size_t index) const { return value()[index]; }

NodePtr DatasetNode::sharded(const FileShard& shard) const {
  const std::lock_guard lock(mutex_);
  if (shard_ != shard) {
    sharded_ = shard_files(shard);
    shard_ = shard;
  }
  return sharded_;
}

std::vector<ComponentSpec> spec_like(const Example& example) {
  std::vector<ComponentSpec> spec;
  for (const Tensor& component : example) {
    spec.push_back({component.dtype(), component.shape()});
    if (component.rank() > 0) spec.back().shape.set(0, -1);
  }
  return spec;
}

struct Iterator::State final : ElementPass {
  NodePtr node;               // owns the data that the stream reads
  StreamPtr<Example> stream;  // null after the end
  IterateOptions position;
  bool of_trace = false;                            // created while a graph was built
  NextExample ahead;                                // read for `specs` and not yet taken
  std::optional<std::vector<ComponentSpec>> specs;  // set by element_spec()

  NextExample take() {
    NextExample example = ahead ? std::exchange(ahead, {}) : read();
    if (example) ++position.skip;
    return example;
  }

  bool next(std::vector<Tensor>& element) override {
    const NextExample example = take();
    if (example) element = example->components();
    return example.has_value();
  }

  const std::vector<ComponentSpec>& element_spec() {
    if (!specs) specs = node->spec();
    if (!specs) specs = spec_of_next();
    return *specs;
  }

 private:
  NextExample read() {
    if (!stream) return {};
    const PipelineScope scope;
    Example example;
    bool more = false;
    try {
      more = stream->next(example);
    } catch (...) {
      stream.reset();
      throw;
    }
    if (more) return example;
    stream.reset();
    return {};
  }

  std::vector<ComponentSpec> spec_of_next() {
    ahead = read();
    if (!ahead)
      fail<FailedPreconditionError>(
          "[Iterator] expected an element whose dtypes and shapes are those of the others, got the "
          "end of a dataset whose element_spec() is not known");
    return spec_like(*ahead);
  }
};

Iterator::State& Iterator::state() const {
  if (!state_) fail<FailedPreconditionError>("[Iterator] an iterator of no dataset was used");
  return *state_;
}

std::shared_ptr<ElementPass> Iterator::pass() const { return state_; }

NextExample Iterator::next() {
  if (!context.graph || state().of_trace) return state().take();
  std::vector<TensorType> specs;
  for (const ComponentSpec& component : element_spec())
    specs.push_back({component.dtype, component.shape});
  return Example(traced_element(state_, specs));
}

NextExample Iterator::advance() {
  if (context.graph && !state().of_trace)
    fail<FailedPreconditionError>(
        "[Iterator] a loop over an iterator in a traced function would not end: use "
        "for_each(dataset, ...), or call next() once per element");
  return state().take();
}

std::vector<ComponentSpec> Iterator::element_spec() const { return state().element_spec(); }

IterateOptions Iterator::position() const { return state().position; }

const std::shared_ptr<const DatasetNode>& Dataset::node() const {
  if (!node_)
    fail<FailedPreconditionError>(
        "[Dataset] an undefined dataset was used; assign one to it first");
  return node_;
}

Iterator Dataset::iterate(IterateOptions options) const {
  if (options.skip < 0)
    fail<InvalidArgumentError>("[Dataset] expected to skip at least 0 elements, got {}",
                               options.skip);
  auto state = std::make_shared<Iterator::State>();
  state->of_trace = context.graph != nullptr;
  const PipelineScope scope;
  state->node = node();
  state->stream = node()->elements(options.epoch);
  if (options.skip > 0) state->stream->skip(options.skip);
  state->position = options;
  return Iterator(std::move(state));
}

Iterator::Cursor Dataset::begin() const { return iterate({.epoch = node()->next_epoch()}).begin(); }

std::int64_t Dataset::cardinality() const { return node()->cardinality(); }
std::int64_t Dataset::size() const {
  const std::int64_t elements = cardinality();
  if (elements < 0)
    fail<FailedPreconditionError>(
        "[Dataset] expected a known number of elements, got one that is {}",
        elements == kInfiniteCardinality ? "infinite" : "unknown");
  return elements;
}
ElementSpec Dataset::element_spec() const { return node()->spec(); }

Dataset Dataset::from_tensors(const Example& tensors) { return Dataset(tensors_node(tensors)); }
Dataset Dataset::from_tensor_slices(const Example& tensors) {
  return Dataset(slices_node(tensors));
}
Dataset Dataset::from_generator(std::function<GeneratorFn()> make_generator,
                                const GeneratorOptions& options) {
  return Dataset(generator_node(std::move(make_generator), options));
}
Dataset Dataset::from_files(std::vector<std::string> files, ReadFileFn read) {
  return Dataset(files_node(std::move(files), std::move(read)));
}
Dataset Dataset::range(std::int64_t start, std::int64_t stop, std::int64_t step) {
  return Dataset(range_node(start, stop, step));
}
Dataset Dataset::zip(const std::vector<Dataset>& datasets) {
  std::vector<NodePtr> inputs;
  for (const Dataset& dataset : datasets) inputs.push_back(dataset.node());
  return Dataset(zip_node(std::move(inputs)));
}

Dataset Dataset::map(MapFn fn, MapOptions options) const {
  if (options.num_parallel_calls == kAutotune) options.num_parallel_calls = available_cores();
  return Dataset(map_node(node(), std::move(fn), options));
}
Dataset Dataset::filter(FilterFn fn) const { return Dataset(filter_node(node(), std::move(fn))); }
Dataset Dataset::filter(TensorFilterFn fn) const {
  return Dataset(filter_node(node(), std::move(fn)));
}
Dataset Dataset::sample_from_datasets(const std::vector<Dataset>& datasets,
                                      const SampleOptions& options) {
  std::vector<NodePtr> inputs;
  for (const Dataset& dataset : datasets) inputs.push_back(dataset.node());
  return Dataset(sample_node(std::move(inputs), options));
}
Dataset Dataset::flat_map(DatasetMapFn fn) const {
  return Dataset(interleave_node("flat_map", node(), std::move(fn), {.cycle_length = 1}));
}
Dataset Dataset::interleave(DatasetMapFn fn, InterleaveOptions options) const {
  return Dataset(interleave_node("interleave", node(), std::move(fn), options));
}
Dataset Dataset::concatenate(const Dataset& other) const {
  return Dataset(concatenate_node(node(), other.node()));
}
Dataset Dataset::enumerate(std::int64_t start) const {
  return Dataset(zip_node({count_node(start), node()}));
}
Dataset Dataset::shuffle(std::int64_t buffer_size, ShuffleOptions options) const {
  return Dataset(shuffle_node(node(), buffer_size, options));
}
Dataset Dataset::batch(std::int64_t batch_size, BatchOptions options) const {
  return Dataset(batch_node(node(), batch_size, options));
}
Dataset Dataset::padded_batch(std::int64_t batch_size, const PaddedBatchOptions& options) const {
  return Dataset(padded_batch_node(node(), batch_size, options));
}
Dataset Dataset::bucket_by_sequence_length(LengthFn length,
                                           std::vector<std::int64_t> bucket_boundaries,
                                           std::vector<std::int64_t> bucket_batch_sizes,
                                           const BucketOptions& options) const {
  return Dataset(bucket_node(node(), std::move(length), std::move(bucket_boundaries),
                             std::move(bucket_batch_sizes), options));
}
Dataset Dataset::unbatch() const { return Dataset(unbatch_node(node())); }
Dataset Dataset::window(std::int64_t size, WindowOptions options) const {
  return Dataset(window_node(node(), size, options));
}
Dataset Dataset::repeat(std::int64_t count) const { return Dataset(repeat_node(node(), count)); }
Dataset Dataset::take(std::int64_t count) const { return Dataset(take_node(node(), count)); }
Dataset Dataset::skip(std::int64_t count) const { return Dataset(skip_node(node(), count)); }
Dataset Dataset::shard(std::int64_t num_shards, std::int64_t index) const {
  return Dataset(shard_node(node(), num_shards, index));
}
Dataset Dataset::cache() const { return Dataset(cache_node(node())); }
Dataset Dataset::prefetch(std::int64_t buffer_size) const {
  constexpr std::int64_t kChosen = 2;  // one that is ready while another one is made
  return Dataset(prefetch_node(node(), buffer_size == kAutotune ? kChosen : buffer_size));
}
Dataset Dataset::prefetch_to_device(std::string_view device, std::int64_t buffer_size) const {
  return Dataset(prefetch_to_device_node(node(), device, buffer_size));
}

Dataset Dataset::with_auto_shard(AutoShardPolicy policy) const {
  return Dataset(auto_shard_node(node(), policy));
}
AutoShardPolicy Dataset::auto_shard_policy() const { return node()->auto_shard_policy(); }

}  // namespace tandem::data
