// window(), which stacks elements that may overlap, and unbatch(), which takes batches apart.
#include <algorithm>
#include <deque>
#include <limits>

#include "core/status.h"
#include "data/batches.h"
#include "data/description.h"

namespace tandem::data {
namespace {

// --- window ---

class WindowStream final : public ItemStream<Example> {
 public:
  WindowStream(StreamPtr<Example> input, std::int64_t size, WindowOptions options)
      : input_(std::move(input)), size_(size), options_(options) {}

  bool next(Example& item) override { return advance(&item); }
  std::int64_t skip(std::int64_t count) override {
    std::int64_t skipped = 0;
    if (options_.drop_remainder) {  // whether a window is full shows when it is read
      while (skipped < count && advance(nullptr)) ++skipped;
      return skipped;
    }
    std::int64_t elements;
    if (__builtin_mul_overflow(count, options_.shift, &elements))
      elements = std::numeric_limits<std::int64_t>::max();
    const std::int64_t passed = pass(elements);
    return passed / options_.shift + (passed % options_.shift != 0 ? 1 : 0);
  }

 private:
  // Stores the next window unless `item` is null. The first element that is ahead is its first one.
  bool advance(Example* item) {
    std::vector<Example> window;
    for (std::int64_t i = 0; std::ssize(window) < size_; i += options_.stride) {
      if (!read_ahead(i)) break;
      window.push_back(ahead_[static_cast<std::size_t>(i)]);
      check_cancelled();
    }
    if (window.empty() || (options_.drop_remainder && std::ssize(window) < size_)) return false;
    pass(options_.shift);
    if (item) *item = stacked("window", window);
    return true;
  }
  bool read_ahead(std::int64_t index) {
    while (std::ssize(ahead_) <= index) {
      Example element;
      if (!input_->next(element)) return false;
      ahead_.push_back(std::move(element));
    }
    return true;
  }
  // Passes over up to `count` elements; returns how many there were.
  std::int64_t pass(std::int64_t count) {
    const std::int64_t read = std::min(count, std::ssize(ahead_));
    ahead_.erase(ahead_.begin(), ahead_.begin() + read);
    return read == count ? count : read + input_->skip(count - read);
  }

  StreamPtr<Example> input_;
  std::int64_t size_;
  WindowOptions options_;
  std::deque<Example> ahead_;
};

class WindowNode final : public InputNode {
 public:
  WindowNode(NodePtr input, std::int64_t size, WindowOptions options)
      : InputNode(std::move(input)), size_(size), options_(options) {}
  StreamPtr<Example> elements(std::uint64_t epoch) const override {
    return std::make_unique<WindowStream>(input().elements(epoch), size_, options_);
  }
  std::int64_t cardinality() const override {
    const std::int64_t elements = input().cardinality();
    if (elements <= 0) return elements;
    if (!options_.drop_remainder) return (elements - 1) / options_.shift + 1;
    std::int64_t span;
    if (__builtin_mul_overflow(size_ - 1, options_.stride, &span) || span >= elements) return 0;
    return (elements - 1 - span) / options_.shift + 1;
  }
  Spec spec() const override {
    Spec spec = input().spec();
    const bool full = options_.drop_remainder || input().cardinality() == kInfiniteCardinality;
    if (spec)
      for (ComponentSpec& component : *spec)
        component.shape = component.shape.with_leading(full ? size_ : -1);
    return spec;
  }
  proto::Stage describe(StageWriter&) const override {
    refuse_stage("window", "the messages have no such stage");
  }

 private:
  NodePtr over(NodePtr input, const FileShard&) const override {
    return std::make_shared<WindowNode>(std::move(input), size_, options_);
  }

  std::int64_t size_;
  WindowOptions options_;
};

// --- unbatch ---

class UnbatchStream final : public ItemStream<Example> {
 public:
  explicit UnbatchStream(StreamPtr<Example> input) : input_(std::move(input)) {}
  bool next(Example& item) override {
    if (!open()) return false;
    item = batch_->row(row_++);
    return true;
  }
  std::int64_t skip(std::int64_t count) override {
    std::int64_t skipped = 0;
    while (skipped < count && open()) {
      const std::int64_t rows = std::min(count - skipped, batch_->rows() - row_);
      row_ += rows;
      skipped += rows;
    }
    return skipped;
  }

 private:
  // Whether there is a next row in `batch_`.
  bool open() {
    while (!batch_ || row_ == batch_->rows()) {
      check_cancelled();
      Example batch;
      if (!input_->next(batch)) return false;
      check(batch);
      batch_.emplace(on_host(batch).components());
      row_ = 0;
    }
    return true;
  }
  static void check(const Example& batch) {
    if (batch.empty()) fail<InvalidArgumentError>("[unbatch] expected batches, got an empty one");
    for (std::size_t i = 0; i < batch.size(); ++i)
      if (batch[i].rank() == 0 || batch[i].size_word(0) != batch[0].size_word(0))
        fail<InvalidArgumentError>(
            "[unbatch] expected components with first axes of one size, got shapes {} (component "
            "0) and {} (component {})",
            batch[0].shape().to_string(), batch[i].shape().to_string(), i);
  }

  StreamPtr<Example> input_;
  std::optional<RowSource> batch_;
  std::int64_t row_ = 0;  // the next one
};

class UnbatchNode final : public InputNode {
 public:
  explicit UnbatchNode(NodePtr input) : InputNode(std::move(input)) {}
  StreamPtr<Example> elements(std::uint64_t epoch) const override {
    return std::make_unique<UnbatchStream>(input().elements(epoch));
  }
  std::int64_t cardinality() const override {
    const std::int64_t batches = input().cardinality();
    const Spec batch = input().spec();
    if (batches <= 0) return batches;
    if (!batch || batch->empty() || (*batch)[0].shape.rank() == 0) return kUnknownCardinality;
    std::int64_t rows = (*batch)[0].shape.word(0);
    if (rows < 0 || __builtin_mul_overflow(rows, batches, &rows)) return kUnknownCardinality;
    return rows;
  }
  Spec spec() const override {
    Spec spec = input().spec();
    if (!spec) return spec;
    for (ComponentSpec& component : *spec) {
      if (component.shape.rank() == 0) return std::nullopt;
      component.shape = component.shape.without_leading(1);
    }
    return spec;
  }
  proto::Stage describe(StageWriter&) const override {
    refuse_stage("unbatch", "the messages have no such stage");
  }
  // Without a later batch there is no global batch.
  NodePtr shard_files(const FileShard& shard) const override {
    return shard.batched ? InputNode::shard_files(shard) : nullptr;
  }

 private:
  NodePtr over(NodePtr input, const FileShard&) const override {
    return std::make_shared<UnbatchNode>(std::move(input));
  }
};

}  // namespace

NodePtr window_node(NodePtr input, std::int64_t size, WindowOptions options) {
  if (size < 1) fail<InvalidArgumentError>("[window] expected a size of at least 1, got {}", size);
  if (options.shift == 0) options.shift = size;
  if (options.shift < 1 || options.stride < 1)
    fail<InvalidArgumentError>(
        "[window] expected a shift and a stride of at least 1, got {} and {}", options.shift,
        options.stride);
  return std::make_shared<WindowNode>(std::move(input), size, options);
}

NodePtr unbatch_node(NodePtr input) { return std::make_shared<UnbatchNode>(std::move(input)); }

}  // namespace tandem::data
