#include "parallel/bucket_tensors.h"

#include "core/status.h"
#include "graph/graph.h"
#include "runtime/variable_impl.h"
#include "sync/eager_sync.h"
#include "tandem/array.h"
#include "tandem/autodiff.h"
#include "tensor/tensor_impl.h"

namespace tandem::parallel {
namespace {

class HookTransport final : public CommunicatorTransport {
 public:
  HookTransport(CommHook hook, DeviceImpl& device, std::vector<Variable> parameters,
                std::shared_ptr<comm::ProcessGroupImpl> group)
      : CommunicatorTransport(group->shared_communicator()),
        hook_(std::move(hook)),
        device_(device),
        parameters_(std::move(parameters)),
        group_(std::move(group)) {}

  std::shared_ptr<CollectiveWork> start(const FullBucket& bucket) override {
    const NoGradScope no_grad;
    const auto then =
        labelled(bucket.index, bucket.step, [&] { return hook_(tensors_of(bucket)); });
    return std::make_shared<HookWork>(
        [this, index = bucket.index, step = bucket.step, memory = bucket.memory,
         gradients = std::vector(bucket.gradients.begin(), bucket.gradients.end()), then] {
          const NoGradScope no_grad;
          const std::vector<Tensor> combined =
              labelled(index, step, [&] { return then ? then() : std::vector<Tensor>(); });
          std::vector<Variable> parameters;
          for (std::size_t i : gradients) parameters.push_back(parameters_[i]);
          check_combined(combined, parameters, index);
          for (std::size_t i = 0; i < combined.size(); ++i)
            memory->put(i, impl_of(copy_to_device(combined[i], device_)).data());
        });
  }

 private:
  struct HookWork final : CollectiveWork {
    explicit HookWork(std::function<void()> finish) : finish_(std::move(finish)) {}
    void wait() override { finish_(); }
    bool test() override { return false; }  // hooks can only be waited for
    std::function<void()> finish_;
  };

  GradBucket tensors_of(const FullBucket& full) const {
    const Bucket& bucket = *full.memory;
    GradBucket tensors;
    tensors.index = full.index;
    tensors.is_last = full.is_last;
    tensors.group = comm::ProcessGroup(group_);
    tensors.buffer =
        view_of(device_, bucket.memory(), bucket.whole(), Shape({bucket.whole().count}));
    for (std::size_t i = 0; i < bucket.size(); ++i) {
      const Variable& parameter = parameters_[full.gradients[i]];
      tensors.gradients.push_back(
          view_of(device_, bucket.memory(), bucket.array(i), parameter.shape()));
      tensors.parameters.push_back(parameter);
    }
    return tensors;
  }

  CommHook hook_;
  DeviceImpl& device_;
  std::vector<Variable> parameters_;
  std::shared_ptr<comm::ProcessGroupImpl> group_;
};

}  // namespace

void check_combined(const std::vector<Tensor>& combined, std::span<const Variable> parameters,
                    std::size_t bucket) {
  if (combined.size() != parameters.size())
    fail<InvalidArgumentError>(
        "[register_comm_hook] expected {} combined gradients of bucket {}, got {}",
        parameters.size(), bucket, combined.size());
  for (std::size_t i = 0; i < combined.size(); ++i) {
    const Variable& parameter = parameters[i];
    if (!(combined[i].shape() == parameter.shape()) || combined[i].dtype() != parameter.dtype())
      fail<InvalidArgumentError>(
          "[register_comm_hook] expected a combined gradient of shape {} and dtype {} for {}, "
          "got {} and {}",
          parameter.shape().to_string(), name_of(parameter.dtype()), quoted_name(parameter),
          combined[i].shape().to_string(), name_of(combined[i].dtype()));
  }
}

std::shared_ptr<CommunicatorTransport> make_hook_transport(
    CommHook hook, DeviceImpl& device, std::vector<Variable> parameters,
    std::shared_ptr<comm::ProcessGroupImpl> group) {
  return std::make_shared<HookTransport>(std::move(hook), device, std::move(parameters),
                                         std::move(group));
}

std::vector<Tensor> GradBucket::split(const Tensor& flat) const {
  if (!(flat.shape() == buffer.shape()))
    fail<InvalidArgumentError>("[GradBucket] expected a tensor of shape {}, got {}",
                               buffer.shape().to_string(), flat.shape().to_string());
  std::vector<Tensor> parts;
  if (is_symbolic(buffer)) {  // symbolic buckets have no gaps between tensors
    std::vector<std::int64_t> sizes;
    for (const Tensor& gradient : gradients) sizes.push_back(gradient.size());
    parts = tandem::split(flat, sizes);
    for (std::size_t i = 0; i < parts.size(); ++i)
      parts[i] = reshape(parts[i], gradients[i].shape());
    return parts;
  }
  const TensorImpl& whole = impl_of(buffer);
  for (const Tensor& gradient : gradients) {
    const TensorImpl& part = impl_of(gradient);
    const std::int64_t elements =
        part.data() == nullptr
            ? 0
            : (part.data() - whole.data()) / static_cast<std::int64_t>(size_of(whole.dtype));
    parts.push_back(
        make_view(flat, part.shape, elements * static_cast<std::int64_t>(size_of(flat.dtype()))));
  }
  return parts;
}

}  // namespace tandem::parallel
