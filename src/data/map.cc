// Steps that run the caller's functions: map, on one thread or several, and filter.
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

#include "core/parallel.h"
#include "core/status.h"
#include "data/node.h"
#include "data/splitmix.h"
#include "runtime/generator.h"

namespace tandem::data {
namespace {

// The caller's function with a random stream of its own for each element.
class KeyedMap {
 public:
  KeyedMap(const MapFn& fn, std::uint64_t key) : fn_(fn), key_(key) {}
  Example operator()(const Example& element, std::int64_t position) const {
    Generator generator({.seed = mix(key_, static_cast<std::uint64_t>(position)), .draws = 0});
    const GeneratorScope scope(generator);
    return fn_(element);
  }

 private:
  const MapFn& fn_;
  std::uint64_t key_;
};

class MapStream final : public Stream<Example> {
 public:
  MapStream(StreamPtr<Example> input, KeyedMap fn) : input_(std::move(input)), fn_(fn) {}
  bool next(Example& item) override {
    Example element;
    if (!input_->next(element)) return false;
    item = fn_(element, position_++);
    return true;
  }
  std::int64_t skip(std::int64_t count) override {
    const std::int64_t skipped = input_->skip(count);
    position_ += skipped;
    return skipped;
  }

 private:
  StreamPtr<Example> input_;
  KeyedMap fn_;
  std::int64_t position_ = 0;
};

// Workers take elements from the input, one at a time, and run the function side by side; up to twice
// as many elements as workers are on their way or waiting to be taken.
class ParallelMapStream final : public Stream<Example> {
 public:
  ParallelMapStream(StreamPtr<Example> input, KeyedMap fn, MapOptions options)
      : input_(std::move(input)), fn_(fn), options_(options) {}

  ~ParallelMapStream() override {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    cancelled_ = true;
    may_pull_.notify_all();
    for (std::thread& worker : workers_) worker.join();
  }

  bool next(Example& item) override {
    if (workers_.empty())
      for (int i = 0; i < options_.num_parallel_calls; ++i) workers_.emplace_back([this] { work(); });
    std::unique_lock lock(mutex_);
    std::shared_ptr<Slot> slot;
    wait_for(done_, lock, [&] {
      slot = take_done();
      return slot || (input_ended_ && slots_.empty());
    });
    if (!slot) return false;
    lock.unlock();
    may_pull_.notify_one();
    if (slot->error) std::rethrow_exception(slot->error);
    item = std::move(slot->result);
    return true;
  }

  std::int64_t skip(std::int64_t count) override {
    if (!workers_.empty()) return Stream::skip(count);
    const std::int64_t skipped = input_->skip(count);
    next_position_ += skipped;
    return skipped;
  }

 private:
  struct Slot {
    Example result;
    std::exception_ptr error;
    bool done = false;
  };

  // The next element to hand out, removed from the slots; null when it is not ready.
  std::shared_ptr<Slot> take_done() {
    for (auto it = slots_.begin(); it != slots_.end(); ++it) {
      if ((*it)->done) {
        std::shared_ptr<Slot> slot = std::move(*it);
        slots_.erase(it);
        return slot;
      }
      if (options_.deterministic) return nullptr;
    }
    return nullptr;
  }

  void work() {
    const PipelineScope scope;
    const ThreadBudget one_thread(1);
    cancel_flag = &cancelled_;
    const auto capacity = 2 * static_cast<std::size_t>(options_.num_parallel_calls);
    std::unique_lock lock(mutex_);
    for (;;) {
      may_pull_.wait(lock, [&] { return stop_ || input_ended_ || (!pulling_ && slots_.size() < capacity); });
      if (stop_ || input_ended_) return;
      // The slot is there before its element, so that the order of slots is the input's.
      pulling_ = true;
      const auto slot = std::make_shared<Slot>();
      slots_.push_back(slot);
      lock.unlock();
      Example element;
      bool more = false;
      try {
        more = input_->next(element);
      } catch (...) {
        slot->error = std::current_exception();
      }
      lock.lock();
      pulling_ = false;
      if (!more) {
        input_ended_ = true;
        if (slot->error)
          slot->done = true;
        else
          slots_.pop_back();
        may_pull_.notify_all();
        done_.notify_one();
        return;
      }
      const std::int64_t position = next_position_++;
      lock.unlock();
      may_pull_.notify_one();
      try {
        slot->result = fn_(element, position);
      } catch (...) {
        slot->error = std::current_exception();
      }
      element = {};
      lock.lock();
      slot->done = true;
      done_.notify_one();
    }
  }

  StreamPtr<Example> input_;  // used by the worker that set pulling_
  KeyedMap fn_;
  MapOptions options_;
  std::vector<std::thread> workers_;
  std::atomic<bool> cancelled_{false};

  std::mutex mutex_;  // guards what follows
  std::condition_variable may_pull_, done_;
  std::deque<std::shared_ptr<Slot>> slots_;
  std::int64_t next_position_ = 0;
  bool pulling_ = false, input_ended_ = false, stop_ = false;
};

class MapNode final : public InputNode {
 public:
  MapNode(NodePtr input, MapFn fn, MapOptions options)
      : InputNode(std::move(input)), fn_(std::move(fn)), options_(options), seed_(step_seed({}, this->input())) {}
  StreamPtr<Example> elements(std::uint64_t epoch) const override {
    const KeyedMap keyed(fn_, mix(seed_, epoch));
    if (options_.num_parallel_calls > 1)
      return std::make_unique<ParallelMapStream>(input().elements(epoch), keyed, options_);
    return std::make_unique<MapStream>(input().elements(epoch), keyed);
  }
  Spec spec() const override { return std::nullopt; }

 private:
  MapFn fn_;
  MapOptions options_;
  std::uint64_t seed_;
};

class FilterStream final : public Stream<Example> {
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

class FilterNode final : public InputNode {
 public:
  FilterNode(NodePtr input, FilterFn fn) : InputNode(std::move(input)), fn_(std::move(fn)) {}
  StreamPtr<Example> elements(std::uint64_t epoch) const override {
    return std::make_unique<FilterStream>(input().elements(epoch), fn_);
  }
  std::int64_t cardinality() const override {
    const std::int64_t input_size = input().cardinality();
    return input_size == 0 ? 0 : kUnknownCardinality;
  }

 private:
  FilterFn fn_;
};

}  // namespace

NodePtr map_node(NodePtr input, MapFn fn, MapOptions options) {
  if (!fn) fail<InvalidArgumentError>("[map] expected a function, got an empty one");
  if (options.num_parallel_calls < 1)
    fail<InvalidArgumentError>("[map] expected num_parallel_calls of at least 1, got {}", options.num_parallel_calls);
  return std::make_shared<MapNode>(std::move(input), std::move(fn), options);
}

NodePtr filter_node(NodePtr input, FilterFn fn) {
  if (!fn) fail<InvalidArgumentError>("[filter] expected a function, got an empty one");
  return std::make_shared<FilterNode>(std::move(input), std::move(fn));
}

}  // namespace tandem::data
