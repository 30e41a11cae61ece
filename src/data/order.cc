// Transformations that select and order elements without reading them: take, skip, shard, repeat,
// shuffle. If the elements are rows of tensors, they work on row indices.
#include <limits>

#include "core/status.h"
#include "data/description.h"
#include "data/selection.h"
#include "data/splitmix.h"

namespace tandem::data {
namespace {

// One of these transformations. `Transform` opens a stream of examples or of row indices.
template <class Transform>
class OrderNode final : public InputNode {
 public:
  OrderNode(NodePtr input, Transform transform)
      : InputNode(std::move(input)), transform_(transform) {}
  StreamPtr<Example> elements(std::uint64_t epoch) const override {
    if (rows()) return row_stream(indices(epoch), *rows());
    return transform_.template open<Example>(input(), epoch);
  }
  const RowSource* rows() const override { return input().rows(); }
  StreamPtr<std::int64_t> indices(std::uint64_t epoch) const override {
    return rows() ? transform_.template open<std::int64_t>(input(), epoch) : nullptr;
  }
  std::int64_t cardinality() const override {
    return transform_.cardinality(input().cardinality());
  }
  proto::Stage describe(StageWriter& writer) const override {
    proto::Stage stage = writer.stage(input());
    transform_.describe(stage);
    return stage;
  }
  bool is_random() const override {
    if constexpr (requires { transform_.seed; }) return transform_.seed.is_default();
    return false;
  }
  NodePtr moved(std::vector<NodePtr> inputs, const PlaceChange& change) const override {
    Transform transform = transform_;
    if constexpr (requires { transform.seed; }) transform.seed = transform.seed.moved(change);
    return std::make_shared<OrderNode>(std::move(inputs[0]), transform);
  }
  std::uint64_t shard_seed() const override {
    const std::uint64_t before = input().shard_seed();
    if constexpr (requires { transform_.shard(); })
      return transform_.shard() == 0 ? before : mix(before, transform_.shard());
    return before;
  }

 private:
  NodePtr over(NodePtr input, const FileShard&) const override {
    return std::make_shared<OrderNode>(std::move(input), transform_);
  }

  Transform transform_;
};

template <class Transform>
NodePtr order_node(NodePtr input, Transform transform) {
  return std::make_shared<OrderNode<Transform>>(std::move(input), transform);
}

// --- take ---

template <class Item>
class TakeStream final : public ItemStream<Item> {
 public:
  TakeStream(StreamPtr<Item> input, std::int64_t count) : input_(std::move(input)), left_(count) {}
  bool next(Item& item) override {
    if (left_ == 0 || !input_->next(item)) return false;
    --left_;
    return true;
  }
  std::int64_t skip(std::int64_t count) override {
    const std::int64_t skipped = input_->skip(std::min(count, left_));
    left_ -= skipped;
    return skipped;
  }
  bool select(const Selection& of) override {
    if (!input_->select(of)) return false;
    left_ = of.size(left_);
    return true;
  }

 private:
  StreamPtr<Item> input_;
  std::int64_t left_;
};

constexpr std::int64_t kAll = std::numeric_limits<std::int64_t>::max();

struct Take {
  std::int64_t count;
  template <class Item>
  StreamPtr<Item> open(const DatasetNode& input, std::uint64_t epoch) const {
    return std::make_unique<TakeStream<Item>>(input.open<Item>(epoch), count);
  }
  std::int64_t cardinality(std::int64_t input) const {
    if (count == kAll) return input;
    if (input == kInfiniteCardinality) return count;
    return input == kUnknownCardinality ? kUnknownCardinality : std::min(input, count);
  }
  void describe(proto::Stage& stage) const { stage.set_take(count == kAll ? -1 : count); }
};

// --- skip and shard: every `step`-th element from the `first`-th on ---

struct Every {
  std::int64_t first, step;
  // Shard 0 has the seeds of a whole pipeline; skip() is no shard.
  std::uint64_t shard() const { return step > 1 ? static_cast<std::uint64_t>(first) : 0; }
  template <class Item>
  StreamPtr<Item> open(const DatasetNode& input, std::uint64_t epoch) const {
    return std::make_unique<SelectedStream<Item>>(input.open<Item>(epoch),
                                                  Selection{first, 1, step});
  }
  std::int64_t cardinality(std::int64_t input) const {
    if (input < 0) return input;
    return input > first ? (input - first - 1) / step + 1 : 0;
  }
  void describe(proto::Stage& stage) const {
    stage.mutable_every()->set_first(first);
    stage.mutable_every()->set_step(step);
  }
};

// --- repeat ---

template <class Item>
class RepeatStream final : public ItemStream<Item> {
 public:
  RepeatStream(const DatasetNode& input, std::int64_t count, std::uint64_t epoch)
      : input_(input),
        count_(count),
        // Repetitions are epochs of the input, counted over the epochs of the whole.
        first_epoch_(count >= 0 ? epoch * static_cast<std::uint64_t>(count) : epoch << 32) {}

  bool next(Item& item) override {
    while (open()) {
      if (pass_->next(item)) {
        empty_ = false;
        return true;
      }
      close();
    }
    return false;
  }

  std::int64_t skip(std::int64_t count) override {
    std::int64_t skipped = 0;
    const std::int64_t size = input_.cardinality();
    while (skipped < count) {
      // Whole repetitions need not be opened when their size is known.
      if (!pass_ && size > 0) {
        std::int64_t whole = (count - skipped) / size;
        if (count_ >= 0) whole = std::min(whole, count_ - repetition_);
        repetition_ += whole;
        skipped += whole * size;
        empty_ = false;
        if (skipped == count) break;
      }
      if (!open()) break;
      const std::int64_t passed = pass_->skip(count - skipped);
      if (passed > 0) empty_ = false;
      skipped += passed;
      if (skipped < count) close();
    }
    return skipped;
  }

 private:
  bool open() {
    if (pass_) return true;
    if (ended_ || repetition_ == count_) return false;
    pass_ = input_.open<Item>(first_epoch_ + static_cast<std::uint64_t>(repetition_));
    empty_ = true;
    return true;
  }
  void close() {
    ended_ = empty_;  // an empty input that is repeated forever is empty
    pass_.reset();
    ++repetition_;
  }

  const DatasetNode& input_;
  std::int64_t count_;
  std::uint64_t first_epoch_;
  std::int64_t repetition_ = 0;
  StreamPtr<Item> pass_;
  bool empty_ = true;  // the current pass has had no element yet
  bool ended_ = false;
};

struct Repeat {
  std::int64_t count;
  template <class Item>
  StreamPtr<Item> open(const DatasetNode& input, std::uint64_t epoch) const {
    return std::make_unique<RepeatStream<Item>>(input, count, epoch);
  }
  std::int64_t cardinality(std::int64_t input) const {
    if (count == 0 || input == 0) return 0;
    if (count < 0 || input == kInfiniteCardinality) return kInfiniteCardinality;
    if (input == kUnknownCardinality) return kUnknownCardinality;
    std::int64_t total;
    return __builtin_mul_overflow(input, count, &total) ? kInfiniteCardinality : total;
  }
  void describe(proto::Stage& stage) const { stage.set_repeat(count); }
};

// --- shuffle ---

template <class Item>
class ShuffleStream final : public ItemStream<Item> {
 public:
  ShuffleStream(StreamPtr<Item> input, std::int64_t buffer_size, std::uint64_t seed)
      : input_(std::move(input)), capacity_(static_cast<std::size_t>(buffer_size)), random_(seed) {}
  bool next(Item& item) override {
    Item next;
    while (!input_ended_ && buffer_.size() < capacity_) {
      if (input_->next(next))
        buffer_.push_back(std::move(next));
      else
        input_ended_ = true;
    }
    if (buffer_.empty()) return false;
    Item& chosen = buffer_[static_cast<std::size_t>(random_.below(buffer_.size()))];
    item = std::move(chosen);
    if (&chosen != &buffer_.back()) chosen = std::move(buffer_.back());
    buffer_.pop_back();
    return true;
  }

 private:
  StreamPtr<Item> input_;
  std::size_t capacity_;
  SplitMix random_;
  std::vector<Item> buffer_;
  bool input_ended_ = false;
};

struct Shuffle {
  std::int64_t buffer_size;
  TransformationSeed seed;
  bool reshuffle;
  template <class Item>
  StreamPtr<Item> open(const DatasetNode& input, std::uint64_t epoch) const {
    return std::make_unique<ShuffleStream<Item>>(input.open<Item>(epoch), buffer_size,
                                                 mix(seed.value(), reshuffle ? epoch : 0));
  }
  std::int64_t cardinality(std::int64_t input) const { return input; }
  void describe(proto::Stage& stage) const {
    stage.mutable_shuffle()->set_buffer_size(buffer_size);
    stage.mutable_shuffle()->set_seed(seed.value());
    stage.mutable_shuffle()->set_reshuffle_each_iteration(reshuffle);
    stage.mutable_shuffle()->set_seed_is_default(seed.is_default());
  }
};

// --- with_auto_shard ---

class AutoShardNode final : public InputNode {
 public:
  AutoShardNode(NodePtr input, AutoShardPolicy policy)
      : InputNode(std::move(input)), policy_(policy) {}
  StreamPtr<Example> elements(std::uint64_t epoch) const override {
    return input().elements(epoch);
  }
  const RowSource* rows() const override { return input().rows(); }
  StreamPtr<std::int64_t> indices(std::uint64_t epoch) const override {
    return input().indices(epoch);
  }
  AutoShardPolicy auto_shard_policy() const override { return policy_; }
  proto::Stage describe(StageWriter& writer) const override {
    proto::Stage stage = writer.stage(input());
    stage.set_auto_shard(static_cast<std::uint32_t>(policy_));
    return stage;
  }

 private:
  NodePtr over(NodePtr input, const FileShard&) const override {
    return std::make_shared<AutoShardNode>(std::move(input), policy_);
  }

  AutoShardPolicy policy_;
};

}  // namespace

NodePtr auto_shard_node(NodePtr input, AutoShardPolicy policy) {
  return std::make_shared<AutoShardNode>(std::move(input), policy);
}

NodePtr take_node(NodePtr input, std::int64_t count) {
  if (count < -1)
    fail<InvalidArgumentError>("[take] expected a count of at least 0, or -1 for all, got {}",
                               count);
  return order_node(std::move(input), Take{count == -1 ? kAll : count});
}

NodePtr skip_node(NodePtr input, std::int64_t count) {
  if (count < 0) fail<InvalidArgumentError>("[skip] expected a count of at least 0, got {}", count);
  return order_node(std::move(input), Every{count, 1});
}

NodePtr shard_node(NodePtr input, std::int64_t num_shards, std::int64_t index) {
  if (num_shards < 1)
    fail<InvalidArgumentError>("[shard] expected at least 1 shard, got {}", num_shards);
  if (index < 0 || index >= num_shards)
    fail<InvalidArgumentError>("[shard] expected an index of [0, {}), got {}", num_shards, index);
  return order_node(std::move(input), Every{index, num_shards});
}

NodePtr repeat_node(NodePtr input, std::int64_t count) {
  if (count < -1)
    fail<InvalidArgumentError>(
        "[repeat] expected a count of at least 0, or -1 for infinite, got {}", count);
  return order_node(std::move(input), Repeat{count});
}

NodePtr shuffle_node(NodePtr input, std::int64_t buffer_size, ShuffleOptions options) {
  if (buffer_size < 1)
    fail<InvalidArgumentError>("[shuffle] expected a buffer of at least 1 element, got {}",
                               buffer_size);
  const TransformationSeed seed =
      options.seed ? TransformationSeed(*options.seed) : TransformationSeed(*input);
  return order_node(std::move(input), Shuffle{buffer_size, seed, options.reshuffle_each_iteration});
}

}  // namespace tandem::data
