// Transformations that run the caller's functions: map, on one or several threads, and filter.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

#include "core/mutex.h"
#include "core/parallel.h"
#include "core/status.h"
#include "core/threads.h"
#include "data/description.h"
#include "data/graph_function.h"
#include "data/selection.h"
#include "data/splitmix.h"
#include "runtime/generator.h"

namespace tandem::data {
namespace {

// The caller's function, with a separate random generator for each element.
class KeyedMap {
 public:
  KeyedMap(const MapFn& fn, std::uint64_t key) : fn_(fn), key_(key) {}
  Example operator()(const Example& element, std::int64_t position) const {
    Generator generator({.seed = mix(key_, static_cast<std::uint64_t>(position)), .offset = 0});
    const Scoped scope(context.generator, &generator);
    return fn_(element);
  }

 private:
  const MapFn& fn_;
  std::uint64_t key_;
};

class MapStream final : public ItemStream<Example> {
 public:
  MapStream(StreamPtr<Example> input, KeyedMap fn) : input_(std::move(input)), fn_(fn) {}
  bool next(Example& item) override {
    Example element;
    if (!input_->next(element)) return false;
    item = fn_(element, selection_.place(index_++));
    return true;
  }
  std::int64_t skip(std::int64_t count) override {
    const std::int64_t skipped = input_->skip(count);
    index_ += skipped;
    return skipped;
  }
  bool select(const Selection& of) override {
    if (!input_->select(of)) return false;
    selection_ = of;
    return true;
  }

 private:
  StreamPtr<Example> input_;
  KeyedMap fn_;
  Selection selection_;
  std::int64_t index_ = 0;
};

// Worker threads pull chunks of elements from the input, one thread at a time, and run the function
// on them in parallel. At most twice as many chunks as threads are in progress or waiting for the
// consumer. Cheap functions get larger chunks, to amortise the synchronisation.
class ParallelMapStream final : public ItemStream<Example> {
 public:
  ParallelMapStream(StreamPtr<Example> input, KeyedMap fn, MapOptions options)
      : input_(std::move(input)), fn_(fn), options_(options) {}

  ~ParallelMapStream() override {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    cancelled_ = true;
    may_pull_->notify_all();
    for (std::thread& worker : workers_) process_.join(worker);
  }

  bool next(Example& item) override {
    process_.expect_this("map");
    if (workers_.empty())
      for (int i = 0; i < options_.num_parallel_calls; ++i)
        workers_.push_back(start_thread([this] { work(); }));
    while (taken_ == current_.results.size()) {
      if (current_.error) std::rethrow_exception(std::exchange(current_.error, nullptr));
      std::unique_lock lock(mutex_);
      wait_for(*done_, lock,
               [&] { return take_finished_chunk() || (input_ended_ && chunks_.empty()); });
      if (taken_ == current_.results.size() && !current_.error && input_ended_ && chunks_.empty())
        return false;
      lock.unlock();
      may_pull_->notify_one();
    }
    item = std::move(current_.results[taken_++]);
    return true;
  }

  std::int64_t skip(std::int64_t count) override {
    if (!workers_.empty()) return ItemStream::skip(count);
    const std::int64_t skipped = input_->skip(count);
    next_index_ += skipped;
    return skipped;
  }
  // Workers run ahead: they have run the function on elements by the time that these are skipped.
  bool select(const Selection& of) override {
    if (selected_) return false;
    selected_ = true;
    selection_ = of;
    input_ = std::make_unique<SelectedStream<Example>>(std::move(input_), of);
    return true;
  }

 private:
  struct MappedChunk {
    std::vector<Example> results;  // of the elements before the error, if there is one
    std::exception_ptr error;
    bool done = false;
  };

  // Makes the next finished chunk the current one. Returns false if there is none.
  bool take_finished_chunk() {
    for (auto it = chunks_.begin(); it != chunks_.end(); ++it) {
      if ((*it)->done) {
        current_ = std::move(**it);
        taken_ = 0;
        chunks_.erase(it);
        return true;
      }
      if (options_.deterministic) return false;
    }
    return false;
  }

  void work() {
    const PipelineScope scope;
    const ThreadBudget one_thread(1);
    context.cancelled = &cancelled_;
    const auto capacity = 2 * static_cast<std::size_t>(options_.num_parallel_calls);
    std::unique_lock lock(mutex_);
    for (;;) {
      may_pull_->wait(
          lock, [&] { return stop_ || input_ended_ || (!pulling_ && chunks_.size() < capacity); });
      if (stop_ || input_ended_) return;
      // Queued before its elements are pulled, so that chunks are in the input's order.
      pulling_ = true;
      const auto chunk = std::make_shared<MappedChunk>();
      chunks_.push_back(chunk);
      const std::size_t size = chunk_size_;
      const std::int64_t index = next_index_;
      lock.unlock();
      std::exception_ptr input_error;
      bool ended = false;
      std::vector<Example> elements = pull(size, input_error, ended);
      lock.lock();
      pulling_ = false;
      input_ended_ = ended;
      next_index_ += static_cast<std::int64_t>(elements.size());
      lock.unlock();
      if (ended)
        may_pull_->notify_all();
      else
        may_pull_->notify_one();

      const auto start = std::chrono::steady_clock::now();
      chunk->results = std::move(elements);
      apply(*chunk, index);
      if (!chunk->error) chunk->error = input_error;
      const auto taken = std::chrono::steady_clock::now() - start;
      lock.lock();
      if (taken < kShortChunk)
        chunk_size_ = std::min(kMaxChunk, 2 * size);
      else if (taken > 8 * kShortChunk)
        chunk_size_ = std::max<std::size_t>(1, size / 2);
      chunk->done = true;
      done_->notify_one();
    }
  }

  std::vector<Example> pull(std::size_t count, std::exception_ptr& error, bool& ended) {
    std::vector<Example> elements;
    try {
      for (Example element; elements.size() < count; elements.push_back(std::move(element)))
        if (!input_->next(element)) {
          ended = true;
          break;
        }
    } catch (...) {
      error = std::current_exception();
      ended = true;
    }
    return elements;
  }

  void apply(MappedChunk& chunk, std::int64_t index) {
    std::size_t i = 0;
    try {
      for (; i < chunk.results.size(); ++i) {
        check_cancelled();
        chunk.results[i] =
            fn_(chunk.results[i], selection_.place(index + static_cast<std::int64_t>(i)));
      }
    } catch (...) {
      chunk.error = std::current_exception();
      chunk.results.resize(i);
    }
  }

  static constexpr auto kShortChunk = std::chrono::microseconds(250);
  static constexpr std::size_t kMaxChunk = 64;

  StreamPtr<Example> input_;  // used by the worker that set pulling_
  KeyedMap fn_;
  MapOptions options_;
  Selection selection_;
  bool selected_ = false;
  std::vector<std::thread> workers_;
  OwnProcess process_;
  std::atomic<bool> cancelled_{false};
  MappedChunk current_;  // used by the consumer only
  std::size_t taken_ = 0;

  std::mutex mutex_;  // guards the following
  const HeldAtFork held_at_fork_{mutex_};
  Condition may_pull_, done_;
  std::deque<std::shared_ptr<MappedChunk>> chunks_;
  std::size_t chunk_size_ = 1;
  std::int64_t next_index_ = 0;
  bool pulling_ = false, input_ended_ = false, stop_ = false;
};

class MapNode final : public InputNode {
 public:
  // `graph`: `fn` as a graph; null if it is a function of this program.
  MapNode(NodePtr input, MapFn fn, std::shared_ptr<const GraphFunction> graph, MapOptions options,
          TransformationSeed seed)
      : InputNode(std::move(input)),
        fn_(std::move(fn)),
        graph_(std::move(graph)),
        options_(options),
        seed_(seed) {}
  StreamPtr<Example> elements(std::uint64_t epoch) const override {
    const KeyedMap keyed(fn_, mix(seed_.value(), epoch));
    if (options_.num_parallel_calls > 1)
      return std::make_unique<ParallelMapStream>(input().elements(epoch), keyed, options_);
    return std::make_unique<MapStream>(input().elements(epoch), keyed);
  }
  Spec spec() const override { return graph_ ? graph_->spec() : std::nullopt; }
  proto::Stage describe(StageWriter& writer) const override {
    proto::Stage stage = writer.stage(input());
    proto::Stage::Map& map = *stage.mutable_map();
    *map.mutable_function() =
        graph_ ? graph_->message() : trace_function("map", fn_, writer.spec_of(input()), true);
    map.set_num_parallel_calls(options_.num_parallel_calls);
    map.set_deterministic(options_.deterministic);
    map.set_seed(seed_.value());
    return stage;
  }
  bool is_random() const override { return seed_.is_default(); }
  NodePtr moved(std::vector<NodePtr> inputs, const PlaceChange& change) const override {
    return std::make_shared<MapNode>(std::move(inputs[0]), fn_, graph_, options_,
                                     seed_.moved(change));
  }

 private:
  // The elements at one position differ between workers, so the workers get different seeds.
  NodePtr over(NodePtr input, const FileShard& shard) const override {
    const TransformationSeed seed(mix(seed_.value(), static_cast<std::uint64_t>(shard.worker)));
    return std::make_shared<MapNode>(std::move(input), fn_, graph_, options_, seed);
  }

  MapFn fn_;
  std::shared_ptr<const GraphFunction> graph_;
  MapOptions options_;
  TransformationSeed seed_;
};

class FilterStream final : public ItemStream<Example> {
 public:
  FilterStream(StreamPtr<Example> input, const FilterFn& fn) : input_(std::move(input)), fn_(fn) {}
  bool next(Example& item) override {
    while (input_->next(item)) {
      if (fn_(item)) return true;
      check_cancelled();
    }
    return false;
  }

 private:
  StreamPtr<Example> input_;
  const FilterFn& fn_;
};

// Whether the predicate of a filter has returned true.
bool is_true(const Tensor& result) {
  if (!result.defined() || result.dtype() != bool_ || result.rank() != 0)
    fail<InvalidArgumentError>(
        "[filter] `predicate` return type must be convertible to a scalar boolean tensor. Got {}",
        result.defined() ? fmt::format("shape {} and dtype {}", result.shape().to_string(),
                                       name_of(result.dtype()))
                         : std::string("an undefined tensor"));
  return result.item<bool>();
}

class FilterNode final : public InputNode {
 public:
  // `operations`: returns the result of `fn` as a tensor; empty if `fn` is C++. `graph`: the same
  // as a graph; null if it is a function of this program.
  FilterNode(NodePtr input, FilterFn fn, MapFn operations,
             std::shared_ptr<const GraphFunction> graph)
      : InputNode(std::move(input)),
        fn_(std::move(fn)),
        operations_(std::move(operations)),
        graph_(std::move(graph)) {}
  StreamPtr<Example> elements(std::uint64_t epoch) const override {
    return std::make_unique<FilterStream>(input().elements(epoch), fn_);
  }
  std::int64_t cardinality() const override {
    const std::int64_t input_size = input().cardinality();
    return input_size == 0 ? 0 : kUnknownCardinality;
  }
  proto::Stage describe(StageWriter& writer) const override {
    proto::Stage stage = writer.stage(input());
    if (!graph_ && !operations_)
      refuse_stage("filter", "its function returns a C++ bool: let it return a tensor");
    *stage.mutable_filter()->mutable_function() =
        graph_ ? graph_->message()
               : trace_function("filter", operations_, writer.spec_of(input()), false);
    return stage;
  }

 private:
  NodePtr over(NodePtr input, const FileShard&) const override {
    return std::make_shared<FilterNode>(std::move(input), fn_, operations_, graph_);
  }

  FilterFn fn_;
  MapFn operations_;
  std::shared_ptr<const GraphFunction> graph_;
};

void check(const MapOptions& options) {
  if (options.num_parallel_calls < 1)
    fail<InvalidArgumentError>("[map] expected num_parallel_calls of at least 1, got {}",
                               options.num_parallel_calls);
}

}  // namespace

NodePtr map_node(NodePtr input, MapFn fn, MapOptions options) {
  if (!fn) fail<InvalidArgumentError>("[map] expected a function, got an empty one");
  check(options);
  const TransformationSeed seed(*input);
  return std::make_shared<MapNode>(std::move(input), std::move(fn), nullptr, options, seed);
}

NodePtr map_node(NodePtr input, std::shared_ptr<const GraphFunction> graph, MapOptions options,
                 std::uint64_t seed) {
  check(options);
  MapFn fn = [graph](const Example& element) { return (*graph)(element); };
  return std::make_shared<MapNode>(std::move(input), std::move(fn), std::move(graph), options,
                                   TransformationSeed(seed));
}

NodePtr filter_node(NodePtr input, FilterFn fn) {
  if (!fn) fail<InvalidArgumentError>("[filter] expected a function, got an empty one");
  return std::make_shared<FilterNode>(std::move(input), std::move(fn), nullptr, nullptr);
}

NodePtr filter_node(NodePtr input, TensorFilterFn fn) {
  if (!fn) fail<InvalidArgumentError>("[filter] expected a function, got an empty one");
  return std::make_shared<FilterNode>(
      std::move(input), [fn](const Example& element) { return is_true(fn(element)); },
      [fn](const Example& element) { return Example(fn(element)); }, nullptr);
}

NodePtr filter_node(NodePtr input, std::shared_ptr<const GraphFunction> graph) {
  if (graph->message().fetches_size() != 1)
    fail<InvalidArgumentError>("[filter] expected a function with one result, got {}",
                               graph->message().fetches_size());
  FilterFn fn = [graph](const Example& element) { return is_true((*graph)(element)[0]); };
  return std::make_shared<FilterNode>(std::move(input), std::move(fn), nullptr, std::move(graph));
}

}  // namespace tandem::data
