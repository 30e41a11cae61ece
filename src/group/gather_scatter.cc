// Gathering on one rank and scattering from one. Each is an all_to_all() in which the other parts
// are empty: it compares the ranks' calls and exchanges the shapes.
#include "core/status.h"
#include "graph/graph.h"
#include "group/process_group_impl.h"
#include "tensor/tensor_impl.h"

namespace tandem::comm {
namespace {

std::shared_ptr<ProcessGroupImpl> rooted_group(const ProcessGroup& group, std::string_view op) {
  auto impl = detail::group_of(group, op);
  impl->require_use(op);
  if (context.graph)
    fail<UnimplementedError>(
        "[{}] is not supported in a traced function; use all_gather() or "
        "all_to_all()",
        op);
  return impl;
}

std::vector<Tensor> empty_parts(int ranks, DeviceImpl& device, DType dtype) {
  return {static_cast<std::size_t>(ranks), make_tensor(device, Shape{0}, dtype)};
}

std::size_t part_of(int rank) { return static_cast<std::size_t>(rank); }

}  // namespace

std::vector<Tensor> gather(const Tensor& tensor, int destination,
                           const CollectiveOptions& options) {
  const auto group = rooted_group(options.group, "gather");
  const int root = group->rank_of(destination, "gather");
  std::vector<Tensor> sent = empty_parts(group->size(), impl_of(tensor).device(), tensor.dtype());
  sent[part_of(root)] = tensor;
  std::vector<Tensor> received = all_to_all(sent, {.group = options.group});
  if (group->rank() != root) received.clear();
  return received;
}

Tensor scatter(const std::vector<Tensor>& tensors, int source, const ReceiveOptions& options) {
  const auto group = rooted_group(options.group, "scatter");
  const int root = group->rank_of(source, "scatter");
  const bool sends = group->rank() == root;
  if (sends && tensors.size() != part_of(group->size()))
    fail<InvalidArgumentError>("[scatter] expected a tensor for each of {} ranks, got {}",
                               group->size(), tensors.size());
  return all_to_all(sends ? tensors : empty_parts(group->size(), group->device(), options.dtype),
                    {.group = options.group})[part_of(root)];
}

void gather(const Tensor& tensor, std::vector<Tensor>& tensors, int destination,
            const CollectiveOptions& options) {
  std::vector<Tensor> all = gather(tensor, destination, options);
  if (!all.empty()) tensors = std::move(all);
}

void scatter(Tensor& output, const std::vector<Tensor>& tensors, int source,
             const CollectiveOptions& options) {
  if (!output.defined())
    throw InvalidArgumentError(
        "[scatter] expected a tensor of the shape and dtype that are received, got an undefined "
        "one");
  const Tensor part = scatter(tensors, source, {.dtype = output.dtype(), .group = options.group});
  if (part.shape() != output.shape() || part.dtype() != output.dtype())
    fail<InvalidArgumentError>(
        "[scatter] expected a tensor of shape {} and dtype {} to fill, got {} and {}",
        part.shape().to_string(), name_of(part.dtype()), output.shape().to_string(),
        name_of(output.dtype()));
  output = copy_to_device(part, impl_of(output).device());
}

}  // namespace tandem::comm
