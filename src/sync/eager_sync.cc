#include "sync/eager_sync.h"

#include "runtime/placement.h"
#include "tandem/autodiff.h"
#include "tandem/creation.h"
#include "tandem/math.h"
#include "tensor/tensor_buffers.h"

namespace tandem {

EagerSync::EagerSync(std::shared_ptr<GradientTransport> transport, Device& device,
                     const std::vector<Variable>& variables, ReducerOptions options)
    : transport_(std::move(transport)),
      device_(device),
      reducer_(*transport_, gradient_infos(variables), options) {
  std::vector<Shape> shapes;
  for (const Variable& variable : variables) {
    variables_.emplace_back(&variable.impl());
    shapes.push_back(variable.shape());
  }
  if (reducer_.packs()) views_.emplace(reducer_, device_, std::move(shapes));
}

void EagerSync::begin() {
  reducer_.reset();
  if (views_)
    views_->begin_step();
  else
    gradients_.assign(variables_.size(), Tensor());
}

Tensor EagerSync::gradient_buffer(std::size_t index) {
  return views_ && !contributed(index) ? views_->writable_view(index) : Tensor();
}

void EagerSync::ready(std::size_t index, Tensor gradient, double weight) {
  if (weight != 1.0 && !(views_ && device_.host_accessible())) {
    const NoGradScope no_grad;
    gradient = gradient * weight;
    weight = 1.0;
  }
  if (views_) {
    const Tensor here = copy_to_device(gradient, device_);
    reducer_.ready(index, impl_of(here).data(), weight);
  } else {
    gradients_[index] = exclusive_on(device_, std::move(gradient));
    reducer_.ready(index, impl_of(gradients_[index]).data());
  }
}

void EagerSync::zeros(std::size_t index) {
  if (views_) return reducer_.zeros(index);
  const OnDevice on(device_);
  const TensorType& spec = variables_[index]->spec();
  gradients_[index] = tandem::zeros(spec.shape, {.dtype = spec.dtype});
  reducer_.ready(index, impl_of(gradients_[index]).data());
}

std::vector<Tensor> EagerSync::finish(const std::vector<std::uint8_t>& present) {
  for (std::size_t i = 0; i < variables_.size(); ++i)
    if (!contributed(i)) zeros(i);
  transport_->start_presence_exchange(present);
  reducer_.finish();
  const std::vector<std::uint8_t> anywhere = transport_->wait_presence_exchange();
  std::vector<Tensor> reduced(variables_.size());
  for (std::size_t i = 0; i < reduced.size(); ++i)
    if (anywhere[i])
      reduced[i] = copy_to_device(views_ ? views_->view(i) : std::move(gradients_[i]),
                                  variables_[i]->device());
  gradients_.clear();  // zeros for gradients that no rank had
  return reduced;
}

namespace {

class EagerPass final : public GradientSync {
 public:
  EagerPass(EagerSync& sync, bool inactive, ReduceOp op)
      : sync_(sync), inactive_(inactive), present_(sync.variables().size(), 0) {
    sync_.begin();
    sync_.set_reduce_op(op);
  }

  Tensor gradient_buffer(std::size_t index) override {
    return inactive_ ? Tensor() : sync_.gradient_buffer(index);
  }

  void ready(std::size_t index, Tensor gradient) override {
    if (!gradient.defined()) return;
    check_gradient(gradient, *sync_.variables()[index]);
    present_[index] = 1;
    if (inactive_)
      sync_.zeros(index);
    else
      sync_.ready(index, std::move(gradient));
  }

  std::optional<std::vector<Tensor>> finish() override { return sync_.finish(present_); }

 private:
  EagerSync& sync_;
  bool inactive_;
  std::vector<std::uint8_t> present_;
};

}  // namespace

std::unique_ptr<GradientSync> EagerSync::start(bool inactive, ReduceOp op) {
  return std::make_unique<EagerPass>(*this, inactive, op);
}

}  // namespace tandem
