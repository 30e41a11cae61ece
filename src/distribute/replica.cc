#include "distribute/replica.h"

#include <algorithm>

#include "core/status.h"
#include "runtime/gradient_infos.h"
#include "runtime/placement.h"
#include "tandem/autodiff.h"
#include "tandem/creation.h"

namespace tandem::distribute {

namespace {

// The replica's place among its fellows, whose own programs run beside this one's.
class OwnPlace final : public CollectiveGroup {
 public:
  explicit OwnPlace(std::shared_ptr<Communicator> communicator)
      : communicator_(std::move(communicator)) {}
  Communicator& communicator(int) override { return *communicator_; }
  int size() const override { return communicator_->size(); }
  bool within_program() const override { return false; }

 private:
  std::shared_ptr<Communicator> communicator_;
};

}  // namespace

Replica::Replica(std::shared_ptr<const StrategyMark> strategy, int local, ReplicaGroup& group,
                 Device& device, std::vector<Replica*>& all)
    : group_(group),
      device_(device),
      all_(all),
      communicator_(group.communicator(local)),
      traced_({std::make_shared<OwnPlace>(communicator_), group.first_replica() + local}, device,
              nullptr) {
  strategy_ = std::move(strategy);
  replica_id_ = group.first_replica() + local;
  num_replicas_ = group.num_replicas();
  local_replica_id_ = local;
}

Replica::~Replica() = default;

void Replica::begin(const ReplicaStep& step) {
  num_local_replicas_ = static_cast<int>(all_.size());
  active_ = step.active;
  stands_by_ = step.stands_by;
  leader_ = step.leader;
  example_offset_ = step.total < 0 ? -1 : step.offset;
  local_examples_ = step.total < 0 ? -1 : step.count;
  global_examples_ = step.total;
  generator_.set_state(step.draws);
}

void Replica::add_to_key(std::string& key) const {
  const auto add = [&](std::int64_t number) {
    key.append(reinterpret_cast<const char*>(&number), sizeof(number));
  };
  add(reinterpret_cast<std::intptr_t>(&group_));
  add(replica_id_);
  add(leader_);
  add(stands_by_);
  add(example_offset_);
  add(global_examples_);
  for (const Replica* replica : all_) key += replica->active() ? '1' : '0';
}

bool Replica::updates_idle() const {
  const auto first = std::find_if(all_.begin(), all_.end(),
                                  [](const Replica* replica) { return replica->active(); });
  return *first == this;
}

Tensor Replica::own(Tensor tensor) const {
  const TensorImpl& impl = impl_of(tensor);
  if (&impl.device() == &device_ && impl.unique() && impl.storage->unique()) {
    impl_of(tensor).grad = {};
    return tensor;
  }
  Tensor copy = make_tensor(device_, impl.shape, impl.dtype);
  copy_into(copy, tensor);
  return copy;
}

namespace {

Buffer buffer_of(const Tensor& tensor) {
  const TensorImpl& impl = impl_of(tensor);
  return {impl.data(), impl.shape.num_elements(), impl.dtype};
}

std::vector<Buffer> buffers_of(const std::vector<Tensor>& tensors) {
  std::vector<Buffer> buffers;
  buffers.reserve(tensors.size());
  for (const Tensor& tensor : tensors) buffers.push_back(buffer_of(tensor));
  return buffers;
}

}  // namespace

std::vector<Tensor> Replica::all_reduce_sum(std::span<const Tensor> tensors) {
  if (building) return traced_.all_reduce(tensors, ReduceOp::kSum, stands_by_);
  std::vector<Tensor> sums;
  sums.reserve(tensors.size());
  for (const Tensor& tensor : tensors)
    sums.push_back(own(stands_by_ ? zeros_like(tensor) : tensor));
  communicator_->all_reduce(buffers_of(sums), ReduceOp::kSum)->wait();
  return sums;
}

Tensor Replica::broadcast(const Tensor& tensor) {
  if (building) return traced_.broadcast(tensor, leader_);
  std::vector<Tensor> value = {own(tensor)};
  communicator_->broadcast(buffers_of(value), leader_)->wait();
  return value.front();
}

Replica::Plan& Replica::plan_for(const std::vector<Variable>& variables) {
  const auto same = [&](const std::unique_ptr<Plan>& plan) {
    return std::equal(
        plan->variables.begin(), plan->variables.end(), variables.begin(), variables.end(),
        [](const RefPtr<VariableImpl>& a, const Variable& b) { return a.get() == &b.impl(); });
  };
  const auto found = std::find_if(plans_.begin(), plans_.end(), same);
  if (found != plans_.end()) return **found;
  auto plan = std::make_unique<Plan>();
  std::vector<Shape> shapes;
  for (const Variable& variable : variables) {
    plan->variables.emplace_back(&variable.impl());
    shapes.push_back(variable.shape());
  }
  const ReducerOptions options{.rebuild = communicator_->packs()};
  plan->reducer = std::make_unique<Reducer>(*communicator_, gradient_infos(variables), options);
  if (plan->reducer->packs()) plan->views.emplace(*plan->reducer, device_, std::move(shapes));
  return *plans_.emplace_back(std::move(plan));
}

class Reduction final : public GradientReduction {
 public:
  Reduction(Replica& replica, Replica::Plan& plan)
      : replica_(replica), plan_(plan), gradients_(plan.variables.size()) {
    plan_.reducer->reset();
    if (plan_.views) plan_.views->begin_step();
  }

  // In the bucket.
  Tensor place(std::size_t index) override {
    if (!plan_.views || replica_.stands_by() || plan_.reducer->settled()[index]) return {};
    return plan_.views->vacant(index);
  }

  void ready(std::size_t index, Tensor gradient) override {
    if (!gradient.defined()) return;
    const TensorSpec& spec = plan_.variables[index]->spec();
    if (!may_agree(gradient.shape(), spec.shape) || gradient.dtype() != spec.dtype)
      fail<InvalidArgumentError>(
          "[all_reduce] the gradient of {} has shape {} and dtype {}, expected {} and {}",
          quoted_name(*plan_.variables[index]), gradient.shape().to_string(),
          name_of(gradient.dtype()), spec.shape.to_string(), name_of(spec.dtype));
    if (replica_.stands_by()) return add_zeros(index);
    if (plan_.views) {
      const Tensor here = copy_to_device(gradient, replica_.device());
      plan_.reducer->ready(index, impl_of(here).data());
    } else {
      gradients_[index] = replica_.own(std::move(gradient));
      plan_.reducer->ready(index, impl_of(gradients_[index]).data());
    }
  }

  std::vector<Tensor> finish() override {
    const std::vector<bool> present = settle_missing();
    plan_.reducer->finish();
    if (plan_.views)
      for (std::size_t i = 0; i < gradients_.size(); ++i)
        if (present[i]) gradients_[i] = plan_.views->view(i);
    return std::move(gradients_);
  }

 private:
  // Gradients that this replica does not have: zeros where another one has them. Which ones some
  // replica has.
  std::vector<bool> settle_missing() {
    const std::size_t count = gradients_.size();
    std::vector<std::uint8_t> mine(count),
        all(count * static_cast<std::size_t>(replica_.num_replicas()), 0);
    for (std::size_t i = 0; i < count; ++i) mine[i] = plan_.reducer->settled()[i];
    replica_.communicator_->exchange(mine.data(), count, all.data());
    std::vector<bool> present(count, false);
    for (std::size_t i = 0; i < count; ++i) {
      for (std::size_t at = i; at < all.size(); at += count) present[i] = present[i] || all[at];
      if (mine[i])
        continue;
      else if (present[i])
        add_zeros(i);
      else
        plan_.reducer->skip(i);
    }
    return present;
  }

  void add_zeros(std::size_t index) {
    if (plan_.views) return plan_.reducer->zeros(index);
    const OnDevice on(replica_.device());
    const TensorSpec& spec = plan_.variables[index]->spec();
    gradients_[index] = zeros(spec.shape, {.dtype = spec.dtype});
    plan_.reducer->ready(index, impl_of(gradients_[index]).data());
  }

  Replica& replica_;
  Replica::Plan& plan_;
  std::vector<Tensor> gradients_;
};

std::unique_ptr<GradientReduction> Replica::start_reduction(
    const std::vector<Variable>& variables) {
  if (building) return traced_.start_reduction(variables, stands_by_);
  return std::make_unique<Reduction>(*this, plan_for(variables));
}

void Replica::run_for_idle_replicas(const std::function<void()>& update) {
  if (!updates_idle()) return;
  for (Replica* replica : all_) {
    if (replica->active()) continue;
    ReplicaContextScope context(replica);
    OnDevice on(replica->device());
    update();
  }
}

}  // namespace tandem::distribute
