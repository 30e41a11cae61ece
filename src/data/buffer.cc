// cache(), which keeps elements in memory, and zip(), which joins pipelines.
#include <algorithm>
#include <map>
#include <mutex>

#include "core/status.h"
#include "data/description.h"
#include "data/splitmix.h"

namespace tandem::data {
namespace {

// --- cache ---

// The elements that have been produced so far, and the stream that produces the rest. Thread-safe.
class Cache {
 public:
  explicit Cache(const DatasetNode& input) : input_(input) {}
  // The element at `position`, or false past the end.
  bool get(std::size_t position, Example& item) {
    const std::lock_guard lock(mutex_);
    while (elements_.size() <= position && !complete_) {
      if (!source_) {
        source_ = input_.elements(0);
        source_->skip(static_cast<std::int64_t>(elements_.size()));
      }
      Example element;
      bool more = false;
      try {
        more = source_->next(element);
      } catch (...) {
        source_.reset();  // the next call tries again
        throw;
      }
      if (more) {
        elements_.push_back(std::move(element));
      } else {
        complete_ = true;
        source_.reset();
      }
    }
    if (position >= elements_.size()) return false;
    item = elements_[position];
    return true;
  }

 private:
  const DatasetNode& input_;
  std::mutex mutex_;
  std::vector<Example> elements_;
  StreamPtr<Example> source_;
  bool complete_ = false;
};

class CacheStream final : public ItemStream<Example> {
 public:
  explicit CacheStream(Cache& cache) : cache_(cache) {}
  bool next(Example& item) override {
    if (!cache_.get(position_, item)) return false;
    ++position_;
    return true;
  }

 private:
  Cache& cache_;
  std::size_t position_ = 0;
};

class CacheNode final : public InputNode {
 public:
  explicit CacheNode(NodePtr input) : InputNode(std::move(input)), cache_(this->input()) {}
  StreamPtr<Example> elements(std::uint64_t) const override {
    return std::make_unique<CacheStream>(cache_);
  }
  proto::Stage describe(StageWriter& writer) const override {
    proto::Stage stage = writer.stage(input());
    stage.mutable_cache();
    return stage;
  }
  // One cache for each place, so that joining it twice does not keep its elements twice.
  NodePtr moved(std::vector<NodePtr> inputs, const PlaceChange& change) const override {
    const std::lock_guard lock(mutex_);
    NodePtr& node = moved_[change];
    if (!node) node = std::make_shared<CacheNode>(std::move(inputs[0]));
    return node;
  }

 private:
  NodePtr over(NodePtr input, const FileShard&) const override {
    return std::make_shared<CacheNode>(std::move(input));
  }

  mutable Cache cache_;
  mutable std::mutex mutex_;  // guards the following
  mutable std::map<PlaceChange, NodePtr> moved_;
};

// --- zip ---

class ZipStream final : public ItemStream<Example> {
 public:
  explicit ZipStream(std::vector<StreamPtr<Example>> inputs) : inputs_(std::move(inputs)) {}
  bool next(Example& item) override {
    if (ended_) return false;
    Example joined;
    for (const StreamPtr<Example>& input : inputs_) {
      Example part;
      if (!input->next(part)) {
        ended_ = true;
        return false;
      }
      for (const Tensor& component : part) joined.push_back(component);
    }
    item = std::move(joined);
    return true;
  }
  std::int64_t skip(std::int64_t count) override {
    if (ended_) return 0;
    std::int64_t skipped = count;
    for (const StreamPtr<Example>& input : inputs_) skipped = std::min(skipped, input->skip(count));
    ended_ = skipped < count;
    return skipped;
  }

 private:
  std::vector<StreamPtr<Example>> inputs_;
  bool ended_ = false;
};

class ZipNode final : public DatasetNode {
 public:
  ZipNode(std::vector<NodePtr> inputs, int depth)
      : DatasetNode(depth), inputs_(std::move(inputs)) {}
  std::vector<NodePtr> inputs() const override { return inputs_; }
  NodePtr moved(std::vector<NodePtr> inputs, const PlaceChange& change) const override {
    return std::make_shared<ZipNode>(std::move(inputs), depth() + change.offset);
  }
  StreamPtr<Example> elements(std::uint64_t epoch) const override {
    std::vector<StreamPtr<Example>> streams;
    for (const NodePtr& input : inputs_) streams.push_back(input->elements(epoch));
    return std::make_unique<ZipStream>(std::move(streams));
  }
  std::int64_t cardinality() const override {
    std::int64_t smallest = kInfiniteCardinality;
    for (const NodePtr& input : inputs_) {
      const std::int64_t size = input->cardinality();
      if (size == 0) return 0;
      if (size == kUnknownCardinality || smallest == kUnknownCardinality)
        smallest = kUnknownCardinality;
      else if (size >= 0)
        smallest = smallest < 0 ? size : std::min(smallest, size);
    }
    return smallest;
  }
  std::uint64_t shard_seed() const override {
    std::uint64_t seed = 0;
    for (const NodePtr& input : inputs_)
      if (const std::uint64_t shard = input->shard_seed(); shard != 0) seed = mix(seed, shard);
    return seed;
  }
  AutoShardPolicy auto_shard_policy() const override {
    for (const NodePtr& input : inputs_)
      if (input->auto_shard_policy() != AutoShardPolicy::kAuto) return input->auto_shard_policy();
    return AutoShardPolicy::kAuto;
  }
  Spec spec() const override {
    Spec joined(std::in_place);
    for (const NodePtr& input : inputs_) {
      const Spec part = input->spec();
      if (!part) return std::nullopt;
      joined->insert(joined->end(), part->begin(), part->end());
    }
    return joined;
  }
  proto::Stage describe(StageWriter& writer) const override {
    std::vector<const DatasetNode*> pointers;
    for (const NodePtr& input : inputs_) pointers.push_back(input.get());
    proto::Stage stage = writer.stage(pointers);
    stage.mutable_zip();
    return stage;
  }
  NodePtr shard_files(const FileShard& shard) const override {
    std::vector<NodePtr> sharded;
    for (const NodePtr& input : inputs_) {
      sharded.push_back(input->shard_files(shard));
      if (!sharded.back()) return nullptr;
    }
    return std::make_shared<ZipNode>(std::move(sharded), depth());
  }

 private:
  std::vector<NodePtr> inputs_;
};

// --- concatenate ---

class ConcatenateStream final : public ItemStream<Example> {
 public:
  ConcatenateStream(StreamPtr<Example> first, StreamPtr<Example> second)
      : first_(std::move(first)), second_(std::move(second)) {}
  bool next(Example& item) override {
    if (first_) {
      if (first_->next(item)) return true;
      first_.reset();
    }
    return second_->next(item);
  }
  std::int64_t skip(std::int64_t count) override {
    std::int64_t skipped = 0;
    if (first_) {
      skipped = first_->skip(count);
      if (skipped < count) first_.reset();
    }
    return skipped < count ? skipped + second_->skip(count - skipped) : skipped;
  }

 private:
  StreamPtr<Example> first_, second_;  // `first_` is null after its end
};

class ConcatenateNode final : public DatasetNode {
 public:
  ConcatenateNode(NodePtr first, NodePtr second, int depth)
      : DatasetNode(depth), first_(std::move(first)), second_(std::move(second)) {}
  std::vector<NodePtr> inputs() const override { return {first_, second_}; }
  NodePtr moved(std::vector<NodePtr> inputs, const PlaceChange& change) const override {
    return std::make_shared<ConcatenateNode>(std::move(inputs[0]), std::move(inputs[1]),
                                             depth() + change.offset);
  }
  StreamPtr<Example> elements(std::uint64_t epoch) const override {
    return std::make_unique<ConcatenateStream>(first_->elements(epoch), second_->elements(epoch));
  }
  std::int64_t cardinality() const override {
    const std::int64_t a = first_->cardinality(), b = second_->cardinality();
    if (a == kInfiniteCardinality || b == kInfiniteCardinality) return kInfiniteCardinality;
    std::int64_t sum = 0;
    if (a < 0 || b < 0 || __builtin_add_overflow(a, b, &sum)) return kUnknownCardinality;
    return sum;
  }
  Spec spec() const override { return common_spec(first_->spec(), second_->spec()); }
  AutoShardPolicy auto_shard_policy() const override {
    const AutoShardPolicy policy = first_->auto_shard_policy();
    return policy != AutoShardPolicy::kAuto ? policy : second_->auto_shard_policy();
  }
  std::uint64_t shard_seed() const override {
    const std::uint64_t a = first_->shard_seed(), b = second_->shard_seed();
    return b == 0 ? a : mix(a, b);
  }
  proto::Stage describe(StageWriter&) const override {
    refuse_stage("concatenate", "the messages have no such stage");
  }

 private:
  NodePtr first_, second_;
};

}  // namespace

Spec common_spec(const Spec& a, const Spec& b) {
  if (!a || !b || a->size() != b->size()) return std::nullopt;
  Spec common = a;
  for (std::size_t i = 0; i < a->size(); ++i) {
    Shape& shape = (*common)[i].shape;
    const Shape& other = (*b)[i].shape;
    if ((*common)[i].dtype != (*b)[i].dtype || shape.rank() != other.rank()) return std::nullopt;
    for (int axis = 0; axis < shape.rank(); ++axis)
      if (shape.word(axis) != other.word(axis)) shape.set(axis, -1);
  }
  return common;
}

NodePtr concatenate_node(NodePtr first, NodePtr second) {
  JoinedDatasets joined = join({std::move(first), std::move(second)});
  return std::make_shared<ConcatenateNode>(std::move(joined.inputs[0]), std::move(joined.inputs[1]),
                                           joined.depth);
}

NodePtr cache_node(NodePtr input) { return std::make_shared<CacheNode>(std::move(input)); }

NodePtr zip_node(std::vector<NodePtr> inputs) {
  if (inputs.empty()) fail<InvalidArgumentError>("[zip] expected at least one dataset, got none");
  JoinedDatasets joined = join(std::move(inputs));
  return std::make_shared<ZipNode>(std::move(joined.inputs), joined.depth);
}

}  // namespace tandem::data
