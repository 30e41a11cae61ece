// DistributedDataParallel in the replica-invariant mode.
#include "autodiff/engine.h"
#include "core/bytes.h"
#include "core/status.h"
#include "graph/graph.h"
#include "parallel/ddp_state.h"
#include "runtime/replica_invariance.h"
#include "runtime/variable_impl.h"
#include "sync/parts.h"
#include "sync/tree_sum.h"
#include "tandem/autodiff.h"
#include "tandem/math.h"
#include "tensor/tensor_buffers.h"

namespace tandem::parallel {
namespace {

// Presents this rank as a replica of its job, so that random numbers and weights depend on its
// position in the job.
class RankAsReplica final : public ReplicaContext {
 public:
  RankAsReplica(Communicator& communicator, const TracedRank& traced, std::int64_t examples)
      : communicator_(communicator), traced_(traced) {
    static const auto& mark =
        *new const std::shared_ptr<const StrategyMark>(new StrategyMark{kDdp});
    strategy_ = mark;
    replica_id_ = communicator.rank();
    num_replicas_ = communicator.size();
    averages_gradients_ = true;
    example_offset_ = communicator.rank() * examples;
    local_examples_ = examples;
  }

  std::vector<Tensor> all_reduce(std::span<const Tensor> tensors, ReduceOp op) override {
    if (context.graph) return traced_.all_reduce(tensors, op);
    std::vector<Tensor> reduced;
    std::vector<Buffer> buffers;
    for (const Tensor& tensor : tensors) {
      reduced.push_back(exclusive_on(traced_.device(), tensor));
      buffers.push_back(buffer_of(reduced.back()));
    }
    communicator_.all_reduce(buffers, op)->wait();
    return reduced;
  }

  Tensor broadcast(const Tensor& tensor) override {
    if (context.graph) return traced_.broadcast(tensor, 0);
    const Tensor value = exclusive_on(traced_.device(), tensor);
    const Buffer buffer = buffer_of(value);
    communicator_.broadcast({&buffer, 1}, 0)->wait();
    return value;
  }

  std::unique_ptr<GradientSync> start_sync(const std::vector<Variable>&, ReduceOp) override {
    fail<InternalError>("[{}] gradients are averaged after the last part", kDdp);
  }
  void run_for_idle_replicas(const std::function<void()>&) override {}
  void add_to_key(std::string& key) const override { ByteWriter(key).add(example_offset_); }

 private:
  Communicator& communicator_;
  const TracedRank& traced_;
};

}  // namespace

void DistributedDataParallel::State::require_parts() const {
  require_usable();
  const char* what = joining_          ? "inside join()"
                     : hook_           ? "with a communication hook"
                     : options_.strict ? "with the option strict"
                     : !syncs()        ? "under no_sync()"
                                       : nullptr;
  if (what) fail<UnimplementedError>("[{}] replica-invariant steps {} (for_each_part)", kDdp, what);
  for (std::size_t i = 0; i < leaves_.size(); ++i)
    if (leaf(i).grad().defined())
      fail<FailedPreconditionError>(
          "[{}] expected no gradient before for_each_part(), {} has one: call zero_grad() first",
          kDdp, quoted_name(parameters_[i]));
}

std::vector<Tensor> DistributedDataParallel::State::for_each_part(
    const data::Example& examples, const tandem::detail::PartStep& step, const Around& around) {
  if (invariant_parts() == 0) return step(examples);
  require_parts();
  const std::int64_t count =
      !examples.empty() && examples[0].rank() > 0 ? examples[0].size_word(0) : std::int64_t{0};
  RankAsReplica replica(*communicator_, traced_->rank(), count);
  std::vector<TreeSum> gradients(leaves_.size());
  set_sync(false);
  std::vector<Tensor> values;
  try {
    const auto steps = [&] {
      return sum_over_parts(examples.components(), &replica, [&](const std::vector<Tensor>& part) {
        std::vector<Tensor> result = step(data::Example(part));
        for (std::size_t i = 0; i < leaves_.size(); ++i) {
          Tensor gradient = leaf(i).grad();
          leaf(i).set_grad({});
          gradients[i].add(std::move(gradient));
        }
        return result;
      });
    };
    around([&] { values = steps(); });
    set_sync(true);
  } catch (...) {
    set_sync(true);
    throw;
  }
  average_parts(gradients);
  return values;
}

void DistributedDataParallel::State::average_parts(std::vector<TreeSum>& gradients) {
  const NoGradScope no_grad;
  try {
    if (!context.graph) check_->step();
    const std::unique_ptr<GradientSync> sync = context.graph
                                                   ? traced_->start(ReduceOp::kTreeSum)
                                                   : eager().start(false, ReduceOp::kTreeSum);
    for (std::size_t i = 0; i < gradients.size(); ++i) sync->ready(i, gradients[i].total());
    const std::vector<Tensor> sums = *sync->finish();
    for (std::size_t i = 0; i < sums.size(); ++i)
      if (sums[i].defined()) leaf(i).set_grad(sums[i] / static_cast<double>(invariant_parts()));
  } catch (const std::exception& error) {
    failure_ = error.what();
    throw;
  }
  std::fill(touched_.begin(), touched_.end(), 0);
  examples_ = 0;
  reachable_.clear();
}

}  // namespace tandem::parallel
