#include "sync/parts.h"

#include <algorithm>
#include <optional>

#include "core/bytes.h"
#include "core/status.h"
#include "graph/graph.h"
#include "runtime/generator.h"
#include "runtime/placement.h"
#include "runtime/replica_invariance.h"
#include "sync/gradient_sync.h"
#include "sync/part_writes.h"
#include "sync/tree_sum.h"
#include "tandem/array.h"

namespace tandem {
namespace {

constexpr const char* kForEachPart = "for_each_part";

// --- which parts ---

// The parts that this replica processes. Offsets are -1 if the global batch is unknown.
std::vector<BatchPart> local_parts(std::int64_t examples, const ReplicaContext* replica) {
  const int rank = replica ? replica->replica_id() : 0;
  const int ranks = replica ? replica->num_replicas() : 1;
  const int each = parts_per_replica(ranks);
  if (replica && replica->is_padding()) return {{rank * each, replica->example_offset(), examples}};
  const bool known = !replica || replica->global_examples() >= 0;
  if (!known && examples % each != 0)
    fail<InvalidArgumentError>(
        "[{}] expected a number of examples that is a multiple of the {} parts of this replica, "
        "got "
        "{}",
        kForEachPart, each, examples);
  std::vector<BatchPart> parts = parts_of_replica(!replica ? examples
                                                  : known  ? replica->global_examples()
                                                           : examples * ranks,
                                                  rank, ranks);
  std::int64_t mine = 0;
  for (const BatchPart& part : parts) mine += part.examples;
  const bool same_begin =
      parts.empty() || !replica || !known || parts.front().offset == replica->example_offset();
  if (mine != examples || !same_begin)
    fail<InvalidArgumentError>(
        "[{}] expected the {} examples of parts {} to {} of {}, got {}: in the replica-invariant "
        "mode a batch is split by its parts, which distributed datasets and BatchSplit::even() do",
        kForEachPart, mine, rank * each, (rank + 1) * each - 1, invariant_parts(), examples);
  if (!known && replica->example_offset() < 0)
    for (BatchPart& part : parts) part.offset = -1;
  return parts;
}

std::int64_t count_examples(const std::vector<Tensor>& examples) {
  if (examples.empty() || examples.front().rank() < 1)
    fail<InvalidArgumentError>("[{}] expected tensors with a batch axis, got {}", kForEachPart,
                               examples.empty() ? "none" : "a scalar");
  const std::int64_t count = examples.front().size_word(0);
  if (count < 0)
    fail<UnimplementedError>(
        "[{}] the replica-invariant mode needs batches of known sizes, got {}: leave out "
        "input_signature",
        kForEachPart, examples.front().shape().to_string());
  for (const Tensor& component : examples)
    if (component.rank() < 1 || component.size_word(0) != count)
      fail<InvalidArgumentError>("[{}] expected tensors of {} examples each, got shape {}",
                                 kForEachPart, count, component.shape().to_string());
  return count;
}

// --- a step ---

const std::shared_ptr<const StrategyMark>& no_strategy() {
  static const auto& mark = *new const std::shared_ptr<const StrategyMark>(
      new StrategyMark{"the parts of a batch without a strategy"});
  return mark;
}

// State that the parts of one replica's step share.
struct PartsState {
  ReplicaContext* replica;
  std::vector<BatchPart> parts;
  std::size_t at = 0;  // the current part
  const GraphImpl* graph = context.graph;
  PartWrites writes;
  // The optimizer's step:
  std::vector<RefPtr<VariableImpl>> variables;
  std::vector<TreeSum> gradients;
  bool synced = false;  // the current part has started it

  bool last() const { return at + 1 == parts.size(); }
  void require_same_graph() const {
    if (context.graph != graph)
      fail<UnimplementedError>(
          "[{}] a traced function inside a part runs an optimizer step or assigns to variables: "
          "call {}() inside the function instead",
          kForEachPart, kForEachPart);
  }
};

// Adds the gradients of one part to the sums. The last part completes the sums and passes them on
// to the synchronisation between replicas.
class PartSync final : public GradientSync {
 public:
  PartSync(PartsState& step, std::unique_ptr<GradientSync> replicas)
      : step_(step),
        replicas_(std::move(replicas)),
        gradients_(step.variables.size()),
        present_(step.variables.size(), false) {}

  void ready(std::size_t index, Tensor gradient) override {
    if (!gradient.defined()) return;
    check_gradient(gradient, *step_.variables[index]);
    present_[index] = true;
    add(index, std::move(gradient));
  }

  std::optional<std::vector<Tensor>> finish() override {
    for (std::size_t i = 0; i < gradients_.size(); ++i)
      if (!present_[i]) add(i, {});
    if (!step_.last()) return std::nullopt;
    return replicas_ ? replicas_->finish() : std::move(gradients_);
  }

 private:
  void add(std::size_t index, Tensor gradient) {
    TreeSum& sum = step_.gradients[index];
    sum.add(std::move(gradient));
    if (!step_.last()) return;
    gradients_[index] = sum.total();
    if (replicas_) replicas_->ready(index, std::move(gradients_[index]));
  }

  PartsState& step_;
  std::unique_ptr<GradientSync> replicas_;  // set in the last part if there are several replicas
  std::vector<Tensor> gradients_;
  std::vector<bool> present_;
};

// The ReplicaContext of the current part.
class PartContext final : public ReplicaContext {
 public:
  explicit PartContext(PartsState& step) : step_(step) {
    const BatchPart& part = step.parts[step.at];
    const ReplicaContext* replica = step.replica;
    strategy_ = no_strategy();
    part_ = replica_id_ = part.index;
    num_replicas_ = invariant_parts();
    example_offset_ = part.offset;
    local_examples_ = part.examples;
    if (!replica) {
      global_examples_ = step.parts.back().offset + step.parts.back().examples;
      return;
    }
    strategy_ = replica->shared_strategy();
    local_replica_id_ = replica->local_replica_id();
    num_local_replicas_ = replica->num_local_replicas();
    is_padding_ = replica->is_padding();
    if (is_padding_) local_examples_ = replica->local_examples();
    averages_gradients_ = replica->averages_gradients();
    global_examples_ = replica->global_examples();
    if (averages_gradients_) num_replicas_ = 1;
  }

  std::vector<Tensor> all_reduce(std::span<const Tensor>, ReduceOp) override {
    fail<UnimplementedError>(
        "[{}] all_reduce is not supported inside a part, since parts run one after the other. "
        "Return the values instead: {}() returns their sum",
        kForEachPart, kForEachPart);
  }

  Tensor broadcast(const Tensor&) override {
    fail<UnimplementedError>(
        "[{}] broadcast is not supported inside a part, since parts run one after the other",
        kForEachPart);
  }

  std::unique_ptr<GradientSync> start_sync(const std::vector<Variable>& variables,
                                           ReduceOp) override {
    step_.require_same_graph();
    if (averages_gradients_)
      fail<FailedPreconditionError>(
          "[{}] an optimizer steps inside a part, but DistributedDataParallel averages gradients "
          "after the last part. Call step() after {}()",
          kForEachPart, kForEachPart);
    if (std::exchange(step_.synced, true))
      fail<UnimplementedError>(
          "[{}] expected one optimizer step per part, got a second one: the first is applied after "
          "the last part. Call {}() once per optimizer step",
          kForEachPart, kForEachPart);
    begin_gradients(variables);
    std::unique_ptr<GradientSync> replicas;
    if (ReplicaContext* replica = step_.replica; step_.last() && replica)
      if (replica->num_replicas() > 1)
        replicas = replica->start_sync(variables, ReduceOp::kTreeSum);
    return std::make_unique<PartSync>(step_, std::move(replicas));
  }

  void build(const void* what, const std::function<void()>& make) override {
    step_.replica ? step_.replica->build(what, make) : make();
  }
  void find_built(const void* what) override {
    if (step_.replica) step_.replica->find_built(what);
  }
  void run_for_idle_replicas(const std::function<void()>& update) override {
    if (step_.replica) step_.replica->run_for_idle_replicas(update);
  }

  // Parts change a copy that no other replica has, so the replica must not keep what it reads.
  Tensor read_remote(VariableImpl& variable) override {
    return variable.shared() ? step_.replica->read_remote(variable) : Tensor();
  }
  void end_write(std::span<const Variable> variables) override {
    if (step_.replica) step_.replica->end_write(variables);
  }

  bool gathers_write(VariableImpl& variable) override {
    step_.require_same_graph();
    step_.writes.begin(variable);
    return true;
  }

  void add_to_key(std::string& key) const override {
    if (step_.replica) step_.replica->add_to_key(key);
    ByteWriter(key).add(part_, example_offset_, local_examples_, global_examples_);
  }

 private:
  void begin_gradients(const std::vector<Variable>& variables) {
    const bool first = step_.at == 0;
    if (first) {
      for (const Variable& variable : variables) step_.variables.emplace_back(&variable.impl());
      step_.gradients = std::vector<TreeSum>(variables.size());
    } else if (!same_variables(step_.variables, variables)) {
      fail<InvalidArgumentError>(
          "[{}] expected the optimizer step of each part to update the same variables",
          kForEachPart);
    }
  }

  PartsState& step_;
};

}  // namespace

std::vector<std::vector<Tensor>> run_parts(const std::vector<Tensor>& examples,
                                           ReplicaContext* replica, const PartStep& step) {
  if (const ReplicaContext* context = ReplicaContext::current(); context && context->part() >= 0)
    fail<RuntimeError>("[{}] was called inside a part", kForEachPart);
  const std::int64_t count = count_examples(examples);
  PartsState shared{.replica = replica, .parts = local_parts(count, replica)};
  std::vector<std::vector<Tensor>> results;
  Generator& generator = Generator::current();
  Generator before, mine;
  before.follow(generator);
  std::int64_t row = 0;
  for (; shared.at < shared.parts.size(); ++shared.at) {
    PartContext part(shared);
    shared.synced = false;
    mine.follow(before);
    const std::int64_t end = row + shared.parts[shared.at].examples;
    std::vector<Tensor> rows = examples;
    if (end - row < count)
      for (Tensor& component : rows) component = slice_rows(component, row, end);
    row = end;
    const Scoped replica_scope(context.replica, &part);
    const Scoped generator_scope(context.generator, &mine);
    results.push_back(step(rows));
    shared.writes.end_part();
  }
  generator.follow(mine);
  shared.writes.finish(replica);
  return results;
}

std::vector<Tensor> sum_over_parts(const std::vector<Tensor>& examples, ReplicaContext* replica,
                                   const PartStep& step) {
  if (invariant_parts() == 0) return step(examples);
  std::vector<TreeSum> sums;
  for (const std::vector<Tensor>& values : run_parts(examples, replica, step)) {
    if (sums.empty()) sums.resize(values.size());
    if (sums.size() != values.size())
      fail<InvalidArgumentError>("[{}] expected each part to return {} tensors, got {}",
                                 kForEachPart, sums.size(), values.size());
    for (std::size_t i = 0; i < values.size(); ++i) sums[i].add(values[i].detach());
  }
  std::vector<Tensor> totals;
  for (TreeSum& sum : sums) totals.push_back(sum.total());
  return totals;
}

}  // namespace tandem
