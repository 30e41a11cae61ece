#include "sync/eager_sync.h"

#include <utility>

#include "core/status.h"
#include "runtime/placement.h"
#include "tandem/autodiff.h"
#include "tandem/creation.h"
#include "tandem/math.h"
#include "tensor/tensor_buffers.h"
#include "tensor/tensor_impl.h"

namespace tandem {

Tensor view_of(DeviceImpl& device, const std::shared_ptr<void>& memory, const Buffer& buffer,
               const Shape& shape) {
  RefPtr<TensorImpl> impl(new TensorImpl);
  impl->storage = Storage::adopt(device, memory, buffer.data, buffer.bytes());
  impl->shape = shape;
  impl->dtype = buffer.dtype;
  return Tensor(std::move(impl));
}

EagerSync::EagerSync(std::shared_ptr<GradientTransport> transport, DeviceImpl& device,
                     const std::vector<Variable>& variables, ReducerOptions options)
    : transport_(std::move(transport)),
      device_(device),
      packs_(transport_->packs()),
      options_(options),
      gradients_(gradient_infos(variables)),
      buckets_(gradients_, options_.sizes) {
  for (const Variable& variable : variables) variables_.emplace_back(&variable.impl());
  allocate_buckets();
  begin();
}

void EagerSync::allocate_buckets() {
  tensors_.assign(variables_.size(), Tensor());
  memory_.clear();
  if (!packs_) return;
  std::vector<std::int64_t> counts;
  for (std::size_t bucket = 0; bucket < buckets_.size(); ++bucket) {
    counts.clear();
    for (std::size_t index : buckets_.gradients(bucket)) counts.push_back(gradients_[index].count);
    const DType dtype = gradients_[buckets_.gradients(bucket).front()].dtype;
    memory_.push_back(transport_->make_bucket(counts, dtype));
  }
}

void EagerSync::begin() {
  if (order_known_ && !ready_order_.empty()) {
    buckets_ = BucketFill(gradients_, options_.sizes, std::exchange(ready_order_, {}));
    allocate_buckets();
  }
  contributed_.assign(variables_.size(), false);
  zeros_.assign(variables_.size(), false);
  buckets_.reset();
  if (!order_known_) ready_order_.clear();
  op_ = ReduceOp::kSum;
  next_ = 0;
  in_flight_.clear();
  if (!packs_) return tensors_.assign(variables_.size(), Tensor());
  for (std::size_t i = tensors_.size(); i-- > 0;) {  // as buckets are made: last to first
    if (!tensors_[i].defined() || reusable(impl_of(tensors_[i]))) continue;
    const std::size_t bucket = buckets_.position(i).bucket;
    memory_[bucket].replace_memory();
    for (std::size_t member : buckets_.gradients(bucket)) tensors_[member] = {};
  }
}

const Tensor& EagerSync::view(std::size_t index) {
  Tensor& view = tensors_[index];
  const auto [bucket, array] = buckets_.position(index);
  if (!view.defined())
    view = view_of(device_, memory_[bucket].memory(), memory_[bucket].array(array),
                   variables_[index]->spec().shape);
  return view;
}

Tensor EagerSync::gradient_buffer(std::size_t index) {
  return packs_ && !contributed(index) && reusable(impl_of(view(index))) ? tensors_[index]
                                                                         : Tensor();
}

void EagerSync::ready(std::size_t index, Tensor gradient, double weight) {
  if (weight != 1.0 && !(packs_ && device_.host_accessible())) {
    const NoGradScope no_grad;
    gradient = gradient * weight;
    weight = 1.0;
  }
  if (packs_) {
    const Tensor here = copy_to_device(gradient, device_);
    const auto [bucket, array] = buckets_.position(index);
    memory_[bucket].put(array, impl_of(here).data(), weight);
  } else {
    tensors_[index] = exclusive_on(device_, std::move(gradient));
  }
  mark_contributed(index);
}

void EagerSync::zeros(std::size_t index) {
  if (packs_) {
    const auto [bucket, array] = buckets_.position(index);
    memory_[bucket].put_zeros(array);
    zeros_[index] = true;
  } else {
    const OnDevice on(device_);
    const TensorType& spec = variables_[index]->spec();
    tensors_[index] = tandem::zeros(spec.shape, {.dtype = spec.dtype});
  }
  mark_contributed(index);
}

void EagerSync::mark_contributed(std::size_t index) {
  TANDEM_ASSERT(!contributed_[index]);
  contributed_[index] = true;
  buckets_.add(index);
  if (options_.rebuild && !order_known_) ready_order_.push_back(index);
  for (; next_ < buckets_.size() && buckets_.full(next_); ++next_) start(next_);
  transport_->progress();
}

void EagerSync::start(std::size_t bucket) {
  const std::vector<std::size_t>& members = buckets_.gradients(bucket);
  std::vector<Buffer> buffers;
  if (packs_)
    buffers.push_back(memory_[bucket].whole());
  else
    for (std::size_t i : members)
      buffers.push_back({impl_of(tensors_[i]).data(), gradients_[i].count, gradients_[i].dtype});
  in_flight_.push_back(transport_->start({.index = bucket,
                                          .is_last = bucket + 1 == buckets_.size(),
                                          .step = step_,
                                          .gradients = members,
                                          .zeros = zeros_,
                                          .memory = packs_ ? &memory_[bucket] : nullptr,
                                          .buffers = buffers,
                                          .op = op_}));
}

// The works end with the step, also if it fails.
void EagerSync::wait_for_buckets() {
  const auto works = std::exchange(in_flight_, {});
  for (const std::shared_ptr<CollectiveWork>& work : works) work->wait();
  ++step_;
  if (!options_.rebuild || order_known_) return;
  std::vector<std::int64_t> order(ready_order_.begin(), ready_order_.end());
  transport_->broadcast_order(order);
  ready_order_.assign(order.begin(), order.end());
  order_known_ = true;
}

std::vector<Tensor> EagerSync::finish(const std::vector<std::uint8_t>& present) {
  for (std::size_t i = 0; i < variables_.size(); ++i)
    if (!contributed(i)) zeros(i);
  const auto presence = transport_->exchange_presence(present);
  wait_for_buckets();
  const std::vector<std::uint8_t> anywhere = presence();
  std::vector<Tensor> reduced(variables_.size());
  for (std::size_t i = 0; i < reduced.size(); ++i)
    if (anywhere[i])
      reduced[i] =
          copy_to_device(packs_ ? view(i) : std::move(tensors_[i]), variables_[i]->device());
  if (!packs_) tensors_.assign(variables_.size(), Tensor());  // zeros that no rank needs
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
