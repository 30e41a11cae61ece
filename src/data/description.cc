#include "data/description.h"

#include <utility>

#include "core/status.h"
#include "data/graph_function.h"
#include "data/worker_seeds.h"

namespace tandem::data {
namespace {

// Limits of what one message may make.
constexpr int kMaxStages = 256;
constexpr std::int64_t kMaxStreams = 4096;  // with the threads of maps

template <class... Args>
[[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) {
  fail<InvalidArgumentError>("[Dataset] the description is not valid: {}",
                             fmt::format(format, std::forward<Args>(args)...));
}

Example tensors_at(const proto::Stage::Tensors& message, std::span<const Tensor> tensors) {
  std::vector<Tensor> found;
  for (const std::uint32_t index : message.tensors()) {
    if (index >= tensors.size())
      refuse("expected a tensor below {}, got {}", tensors.size(), index);
    found.push_back(tensors[index]);
  }
  return Example(std::move(found));
}

NodePtr prefetch_of(const proto::Stage::Prefetch& stage, NodePtr input) {
  if (stage.device().empty()) return prefetch_node(std::move(input), stage.buffer_size());
  return prefetch_to_device_node(std::move(input), stage.device(), stage.buffer_size());
}

NodePtr every_of(const proto::Stage::Every& stage, NodePtr input) {
  if (stage.step() == 1) return skip_node(std::move(input), stage.first());
  return shard_node(std::move(input), stage.step(), stage.first());
}

NodePtr auto_shard_of(std::uint32_t policy, NodePtr input) {
  if (policy > static_cast<std::uint32_t>(AutoShardPolicy::kOff))
    refuse("unknown sharding policy {}", policy);
  return auto_shard_node(std::move(input), static_cast<AutoShardPolicy>(policy));
}

NodePtr map_of(const proto::Stage::Map& stage, NodePtr input) {
  return map_node(
      std::move(input), std::make_shared<GraphFunction>(stage.function(), "map"),
      {.num_parallel_calls = stage.num_parallel_calls(), .deterministic = stage.deterministic()},
      stage.seed());
}

NodePtr transformation_of(const proto::Stage& stage, NodePtr input) {
  using Stage = proto::Stage;
  switch (stage.kind_case()) {
    case Stage::kShuffle: {
      const Stage::Shuffle& shuffle = stage.shuffle();
      return shuffle_node(
          std::move(input), shuffle.buffer_size(),
          {.seed = shuffle.seed(), .reshuffle_each_iteration = shuffle.reshuffle_each_iteration()});
    }
    case Stage::kBatch:
      return batch_node(std::move(input), stage.batch().size(),
                        {.drop_remainder = stage.batch().drop_remainder()});
    case Stage::kRepeat: return repeat_node(std::move(input), stage.repeat());
    case Stage::kTake: return take_node(std::move(input), stage.take());
    case Stage::kEvery: return every_of(stage.every(), std::move(input));
    case Stage::kCache: return cache_node(std::move(input));
    case Stage::kPrefetch: return prefetch_of(stage.prefetch(), std::move(input));
    case Stage::kAutoShard: return auto_shard_of(stage.auto_shard(), std::move(input));
    case Stage::kMap: return map_of(stage.map(), std::move(input));
    case Stage::kFilter:
      return filter_node(std::move(input),
                         std::make_shared<GraphFunction>(stage.filter().function(), "filter"));
    default: refuse("a stage of an unknown kind");
  }
}

// The node of a stage. `registered` makes the node of a registered dataset.
NodePtr node_of(const proto::Stage& stage, std::vector<NodePtr> inputs,
                std::span<const Tensor> tensors,
                const std::function<NodePtr(const proto::Stage::Registered&)>& registered) {
  const auto expect_inputs = [&](std::size_t count) {
    if (inputs.size() != count) refuse("a stage of {} inputs, expected {}", inputs.size(), count);
  };
  switch (stage.kind_case()) {
    case proto::Stage::kFromTensors:
      expect_inputs(0);
      return tensors_node(tensors_at(stage.from_tensors(), tensors));
    case proto::Stage::kFromTensorSlices:
      expect_inputs(0);
      return slices_node(tensors_at(stage.from_tensor_slices(), tensors));
    case proto::Stage::kRegistered: expect_inputs(0); return registered(stage.registered());
    case proto::Stage::kFiles:
      expect_inputs(0);
      return files_node({stage.files().paths().begin(), stage.files().paths().end()},
                        stage.files().format());
    case proto::Stage::kZip: return zip_node(std::move(inputs));
    default: expect_inputs(1); return transformation_of(stage, std::move(inputs[0]));
  }
}

class ElsewhereStream final : public ItemStream<Example> {
 public:
  bool next(Example&) override {
    fail<FailedPreconditionError>(
        "[Iterator] the elements of a dataset of workers are not in this program: pass its "
        "iterator to a function that a worker runs");
  }
};

class ElsewhereNode final : public DatasetNode {
 public:
  explicit ElsewhereNode(std::vector<ComponentSpec> spec)
      : DatasetNode(0), spec_(std::move(spec)) {}
  StreamPtr<Example> elements(std::uint64_t) const override {
    return std::make_unique<ElsewhereStream>();
  }
  std::int64_t cardinality() const override { return kUnknownCardinality; }
  Spec spec() const override { return spec_; }
  proto::Stage describe(StageWriter&) const override {
    refuse_stage("create_per_worker_dataset", "its elements are on the workers already");
  }

 private:
  std::vector<ComponentSpec> spec_;
};

}  // namespace

Dataset dataset_elsewhere(std::vector<ComponentSpec> element_spec) {
  return Dataset(std::make_shared<ElsewhereNode>(std::move(element_spec)));
}

Dataset dataset_of(const proto::Dataset& message, std::span<const Tensor> tensors,
                   const distribute::InputContext& input) {
  if (message.stages().empty() || message.stages_size() > kMaxStages)
    refuse("expected 1 to {} stages, got {}", kMaxStages, message.stages_size());
  const PipelineScope scope;
  std::vector<NodePtr> nodes;
  std::vector<std::int64_t> streams;  // that one pass over the node opens
  for (const proto::Stage& stage : message.stages()) {
    std::vector<NodePtr> inputs;
    std::int64_t& opened = streams.emplace_back(1);
    for (const std::uint32_t index : stage.inputs()) {
      if (index >= nodes.size())
        refuse("stage {} has input {}, which does not precede it", nodes.size(), index);
      inputs.push_back(nodes[index]);
      opened += streams[index];
    }
    opened += stage.map().num_parallel_calls();
    if (opened > kMaxStreams) refuse("a pass opens more than {} streams and threads", kMaxStreams);
    nodes.push_back(node_of(
        stage, std::move(inputs), tensors,
        [&](const proto::Stage::Registered& made) { return registered_node(made, input); }));
  }
  return Dataset(nodes.back());
}

std::uint32_t StageWriter::add(const DatasetNode& node) {
  const auto found = stages_.find(&node);
  if (found != stages_.end()) return found->second;
  proto::Stage stage = node.describe(*this);
  if (to_.message.stages_size() == kMaxStages)
    fail<UnimplementedError>("[Dataset] a pipeline of more than {} stages cannot be described",
                             kMaxStages);
  std::vector<NodePtr> inputs;
  for (const std::uint32_t index : stage.inputs()) inputs.push_back(rebuilt_[index]);
  rebuilt_.push_back(
      node_of(stage, std::move(inputs), to_.tensors, [&](const proto::Stage::Registered&) {
        return NodePtr(NodePtr(), &node);
      }));  // which outlives the writer
  *to_.message.add_stages() = std::move(stage);
  const auto index = static_cast<std::uint32_t>(rebuilt_.size() - 1);
  stages_.emplace(&node, index);
  return index;
}

proto::Stage StageWriter::stage(std::span<const DatasetNode* const> inputs) {
  proto::Stage stage;
  for (const DatasetNode* input : inputs) stage.add_inputs(add(*input));
  return stage;
}

void StageWriter::set_tensors(std::span<const Tensor> tensors, proto::Stage::Tensors& to) {
  for (const Tensor& tensor : tensors) {
    to.add_tensors(static_cast<std::uint32_t>(to_.tensors.size()));
    to_.tensors.push_back(tensor);
  }
}

std::vector<ComponentSpec> StageWriter::spec_of(const DatasetNode& node) const {
  if (Spec spec = rebuilt_[stages_.at(&node)]->spec()) return *spec;
  const PipelineScope scope;
  Example first;
  if (!node.elements(0)->next(first))
    fail<FailedPreconditionError>(
        "[Dataset] expected an element whose dtypes and shapes are those of the others, got none: "
        "the element_spec() of the dataset is not known");
  return spec_like(first);
}

DatasetDescription for_worker(DatasetDescription description, int worker) {
  const auto key = static_cast<std::uint64_t>(worker);
  for (proto::Stage& stage : *description.message.mutable_stages()) {
    if (stage.has_map()) stage.mutable_map()->set_seed(seed_of_worker(stage.map().seed(), key));
    if (stage.has_shuffle() && stage.shuffle().seed_is_default())
      stage.mutable_shuffle()->set_seed(seed_of_worker(stage.shuffle().seed(), key));
    if (stage.has_registered()) stage.mutable_registered()->set_worker(key);
  }
  return description;
}

DatasetDescription describe(const Dataset& dataset) {
  DatasetDescription description;
  const PipelineScope scope;
  StageWriter writer(description);
  writer.add(*dataset.node());
  description.element_spec = writer.spec_of(*dataset.node());
  return description;
}

}  // namespace tandem::data
