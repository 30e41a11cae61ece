// The API of DistributedDataParallel.
#include "tandem/ddp.h"

#include "parallel/ddp_state.h"

namespace tandem::parallel {

DistributedDataParallel::DistributedDataParallel(Model module,
                                                 const DistributedDataParallelOptions& options)
    : state_(std::make_shared<State>(std::move(module), options)) {}

Tensor DistributedDataParallel::operator()(const Tensor& input, const CallOptions& options) const {
  return state_->forward(std::span(&input, 1), options);
}
Tensor DistributedDataParallel::operator()(TensorList inputs, const CallOptions& options) const {
  return state_->forward(inputs, options);
}

const Model& DistributedDataParallel::module() const { return state_->module(); }

DistributedDataParallel::NoSync DistributedDataParallel::no_sync() const { return NoSync(state_); }

void DistributedDataParallel::join(const std::function<void()>& inputs,
                                   const JoinOptions& options) const {
  state_->join(inputs, options);
}

std::vector<Tensor> DistributedDataParallel::run_parts(const data::Example& examples,
                                                       const tandem::detail::PartStep& step) const {
  return state_->for_each_part(examples, step);
}

void DistributedDataParallel::register_comm_hook(CommHook hook) const {
  state_->set_hook(std::move(hook));
}

DistributedDataParallel::NoSync::NoSync(std::shared_ptr<State> state)
    : state_(std::move(state)), previous_(state_->set_sync(false)) {}
DistributedDataParallel::NoSync::~NoSync() { state_->set_sync(previous_); }

}  // namespace tandem::parallel
