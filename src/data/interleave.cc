// Several datasets as one: those that a function makes of elements, and those that chance chooses.
#include <cmath>
#include <numeric>

#include "core/scoped.h"
#include "core/status.h"
#include "data/description.h"
#include "data/splitmix.h"
#include "op/context.h"
#include "runtime/generator.h"

namespace tandem::data {
namespace {

// --- flat_map and interleave ---

class InterleaveStream final : public ItemStream<Example> {
 public:
  // `key` gives each dataset random numbers of its own.
  InterleaveStream(StreamPtr<Example> input, const DatasetMapFn& fn, InterleaveOptions options,
                   std::uint64_t key, std::uint64_t epoch)
      : input_(std::move(input)),
        fn_(fn),
        block_length_(options.block_length),
        key_(key),
        epoch_(epoch),
        turns_(static_cast<std::size_t>(options.cycle_length)) {}

  bool next(Example& item) override { return advance(&item); }
  std::int64_t skip(std::int64_t count) override {
    std::int64_t skipped = 0;
    if (turns_.size() > 1) {
      while (skipped < count && advance(nullptr)) ++skipped;
      return skipped;
    }
    Turn& only = turns_[0];
    for (; skipped < count && (only.stream || open(only)); check_cancelled()) {
      skipped += only.stream->skip(count - skipped);
      if (skipped < count) close(only);
    }
    return skipped;
  }

 private:
  struct Turn {
    NodePtr node;  // owns the data that the stream reads
    StreamPtr<Example> stream;
  };

  // Stores the next element, or passes over it if `item` is null.
  bool advance(Example* item) {
    for (;; check_cancelled()) {
      Turn& turn = turns_[turn_];
      if (turn.stream) {
        if (item ? turn.stream->next(*item) : turn.stream->skip(1) == 1) {
          if (++in_block_ == block_length_) end_turn();
          return true;
        }
        close(turn);
        end_turn();
      } else if (!open(turn)) {
        if (open_ == 0) return false;
        end_turn();
      }
    }
  }
  void end_turn() {
    in_block_ = 0;
    turn_ = (turn_ + 1) % turns_.size();
  }
  bool open(Turn& turn) {
    Example element;
    if (input_ended_ || !input_->next(element)) {
      input_ended_ = true;
      return false;
    }
    const std::uint64_t key = mix(key_, static_cast<std::uint64_t>(++position_));
    Generator generator({.seed = mix(key, epoch_), .offset = 0});
    const Scoped scope(context.generator, &generator);
    turn.node = at_other_places(fn_(element).node(), {.source = key});
    turn.stream = turn.node->elements(epoch_);
    ++open_;
    return true;
  }
  void close(Turn& turn) {
    turn.stream.reset();
    turn.node.reset();
    --open_;
  }

  StreamPtr<Example> input_;
  const DatasetMapFn& fn_;
  std::int64_t block_length_;
  std::uint64_t key_, epoch_;
  std::vector<Turn> turns_;
  std::size_t turn_ = 0;
  std::int64_t in_block_ = 0, position_ = 0, open_ = 0;
  bool input_ended_ = false;
};

class InterleaveNode final : public InputNode {
 public:
  InterleaveNode(const char* op, NodePtr input, DatasetMapFn fn, InterleaveOptions options,
                 TransformationSeed seed)
      : InputNode(std::move(input)), op_(op), fn_(std::move(fn)), options_(options), seed_(seed) {}
  StreamPtr<Example> elements(std::uint64_t epoch) const override {
    return std::make_unique<InterleaveStream>(input().elements(epoch), fn_, options_, seed_.value(),
                                              epoch);
  }
  std::int64_t cardinality() const override {
    return input().cardinality() == 0 ? 0 : kUnknownCardinality;
  }
  Spec spec() const override { return std::nullopt; }
  // Its function may make random transformations.
  bool is_random() const override { return true; }
  NodePtr moved(std::vector<NodePtr> inputs, const PlaceChange& change) const override {
    return std::make_shared<InterleaveNode>(op_, std::move(inputs[0]), fn_, options_,
                                            seed_.moved(change));
  }
  proto::Stage describe(StageWriter&) const override {
    refuse_stage(op_, "its function is part of this program");
  }

 private:
  NodePtr over(NodePtr input, const FileShard& shard) const override {
    const TransformationSeed seed(mix(seed_.value(), static_cast<std::uint64_t>(shard.worker)));
    return std::make_shared<InterleaveNode>(op_, std::move(input), fn_, options_, seed);
  }

  const char* op_;
  DatasetMapFn fn_;
  InterleaveOptions options_;
  TransformationSeed seed_;
};

// --- sample_from_datasets ---

class SampleStream final : public ItemStream<Example> {
 public:
  SampleStream(std::vector<StreamPtr<Example>> inputs, std::vector<double> weights, bool stop,
               std::uint64_t seed)
      : inputs_(std::move(inputs)), weights_(std::move(weights)), stop_(stop), random_(seed) {}
  bool next(Example& item) override { return advance(&item); }
  std::int64_t skip(std::int64_t count) override {
    std::int64_t skipped = 0;
    for (; skipped < count && advance(nullptr); ++skipped) check_cancelled();
    return skipped;
  }

 private:
  bool advance(Example* item) {
    while (!ended_) {
      const std::size_t chosen = choose();
      if (chosen == inputs_.size()) break;
      ItemStream<Example>& input = *inputs_[chosen];
      if (item ? input.next(*item) : input.skip(1) == 1) return true;
      weights_[chosen] = 0;
      ended_ = stop_;
    }
    ended_ = true;
    return false;
  }
  // The number of inputs: none is left.
  std::size_t choose() {
    double at = random_.uniform() * std::accumulate(weights_.begin(), weights_.end(), 0.0);
    std::size_t chosen = inputs_.size();
    for (std::size_t i = 0; i < weights_.size(); ++i) {
      if (weights_[i] == 0) continue;
      chosen = i;
      if (at < weights_[i]) break;
      at -= weights_[i];
    }
    return chosen;
  }

  std::vector<StreamPtr<Example>> inputs_;
  std::vector<double> weights_;  // 0 of one that has ended
  bool stop_, ended_ = false;
  SplitMix random_;
};

class SampleNode final : public DatasetNode {
 public:
  SampleNode(std::vector<NodePtr> inputs, int depth, std::vector<double> weights, bool stop,
             TransformationSeed seed)
      : DatasetNode(depth),
        inputs_(std::move(inputs)),
        weights_(std::move(weights)),
        stop_(stop),
        seed_(seed) {}
  std::vector<NodePtr> inputs() const override { return inputs_; }
  bool is_random() const override { return seed_.is_default(); }
  NodePtr moved(std::vector<NodePtr> inputs, const PlaceChange& change) const override {
    return std::make_shared<SampleNode>(std::move(inputs), depth() + change.offset, weights_, stop_,
                                        seed_.moved(change));
  }
  StreamPtr<Example> elements(std::uint64_t epoch) const override {
    std::vector<StreamPtr<Example>> streams;
    for (const NodePtr& input : inputs_) streams.push_back(input->elements(epoch));
    return std::make_unique<SampleStream>(std::move(streams), weights_, stop_,
                                          mix(seed_.value(), epoch));
  }
  std::int64_t cardinality() const override {
    std::int64_t sum = 0;
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      const std::int64_t size = weights_[i] == 0 ? 0 : inputs_[i]->cardinality();
      if (size == kInfiniteCardinality && !stop_) return size;
      if (size < 0 || __builtin_add_overflow(sum, size, &sum)) return kUnknownCardinality;
    }
    return stop_ && sum > 0 ? kUnknownCardinality : sum;
  }
  Spec spec() const override {
    Spec common = inputs_[0]->spec();
    for (const NodePtr& input : inputs_) common = common_spec(common, input->spec());
    return common;
  }
  AutoShardPolicy auto_shard_policy() const override {
    for (const NodePtr& input : inputs_)
      if (input->auto_shard_policy() != AutoShardPolicy::kAuto) return input->auto_shard_policy();
    return AutoShardPolicy::kAuto;
  }
  std::uint64_t shard_seed() const override {
    std::uint64_t seed = 0;
    for (const NodePtr& input : inputs_)
      if (const std::uint64_t shard = input->shard_seed(); shard != 0) seed = mix(seed, shard);
    return seed;
  }
  proto::Stage describe(StageWriter&) const override {
    refuse_stage("sample_from_datasets", "the messages have no such stage");
  }

 private:
  std::vector<NodePtr> inputs_;
  std::vector<double> weights_;
  bool stop_;
  TransformationSeed seed_;
};

std::vector<double> checked_weights(std::vector<double> weights, std::size_t datasets) {
  if (weights.empty()) weights.assign(datasets, 1.0);
  if (weights.size() != datasets)
    fail<InvalidArgumentError>(
        "[sample_from_datasets] expected a weight for each of {} datasets, got {}", datasets,
        weights.size());
  double sum = 0;
  for (const double weight : weights) {
    if (!std::isfinite(weight) || weight < 0)
      fail<InvalidArgumentError>("[sample_from_datasets] expected weights of at least 0, got {}",
                                 weight);
    sum += weight;
  }
  if (sum == 0)
    fail<InvalidArgumentError>("[sample_from_datasets] expected a weight above 0, got none");
  return weights;
}

}  // namespace

NodePtr interleave_node(const char* op, NodePtr input, DatasetMapFn fn, InterleaveOptions options) {
  constexpr std::int64_t kMaxOpen = 4096;
  if (!fn) fail<InvalidArgumentError>("[{}] expected a function, got an empty one", op);
  if (options.cycle_length < 1 || options.cycle_length > kMaxOpen)
    fail<InvalidArgumentError>("[{}] expected a cycle_length of [1, {}], got {}", op, kMaxOpen,
                               options.cycle_length);
  if (options.block_length < 1)
    fail<InvalidArgumentError>("[{}] expected a block_length of at least 1, got {}", op,
                               options.block_length);
  const TransformationSeed seed(*input);
  return std::make_shared<InterleaveNode>(op, std::move(input), std::move(fn), options, seed);
}

NodePtr sample_node(std::vector<NodePtr> inputs, const SampleOptions& options) {
  if (inputs.empty())
    fail<InvalidArgumentError>("[sample_from_datasets] expected at least one dataset, got none");
  std::vector<double> weights = checked_weights(options.weights, inputs.size());
  JoinedDatasets joined = join(std::move(inputs));
  const DatasetNode& first = *joined.inputs[0];
  const TransformationSeed seed =
      options.seed ? TransformationSeed(*options.seed)
                   : TransformationSeed(first).moved({.offset = joined.depth - 1 - first.depth()});
  return std::make_shared<SampleNode>(std::move(joined.inputs), joined.depth, std::move(weights),
                                      options.stop_on_empty_dataset, seed);
}

}  // namespace tandem::data
