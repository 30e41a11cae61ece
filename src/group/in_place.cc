// The collectives that change their first argument, as PyTorch's do. Each is the one that returns
// its results, which replace the argument: at once if async_op asks for it.
#include <algorithm>
#include <atomic>

#include "core/log.h"
#include "core/status.h"
#include "graph/graph.h"
#include "group/process_group_impl.h"
#include "tensor/tensor_impl.h"

namespace tandem::comm {
namespace {

// Throws unless `given` is undefined, or like `result`.
void check_like(std::string_view op, const Tensor& given, const Tensor& result) {
  if (!given.defined()) return;
  if (may_agree(given.shape(), result.shape()) && given.dtype() == result.dtype()) return;
  fail<InvalidArgumentError>(
      "[{}] expected a tensor of shape {} and dtype {} to fill, got {} and {}", op,
      result.shape().to_string(), name_of(result.dtype()), given.shape().to_string(),
      name_of(given.dtype()));
}

// Warns once that other handles of `tensor`, such as the gradient of a variable, keep their
// elements: PyTorch's would change.
void warn_if_shared(std::string_view op, const Tensor& tensor) {
  static std::atomic_flag warned;
  if (context.graph || !tensor.defined() || impl_of(tensor).unique() || warned.test_and_set())
    return;
  logging::warn(
      "[{}] changes this Tensor alone, but there are others of the same elements, which stay as "
      "they are: perhaps a gradient of a variable or an element of a list. Assign the result where "
      "it "
      "belongs, as in w.set_grad(all_reduce(w.grad(), op))",
      op);
}

// Waits for `work`, unless its results need not be copied from the group's device and `async_op`
// allows it not to. Its results are then the tensors that the caller will see.
void settle(Work& work, bool async_op) {
  const std::vector<DeviceImpl*>& devices = work.pending().devices;
  const bool in_place =
      std::all_of(devices.begin(), devices.end(), [](const DeviceImpl* home) { return !home; });
  if (!async_op || !in_place) work.wait();
}

Work fill(std::string_view op, Tensor& tensor, Work work, bool async_op) {
  check_like(op, tensor, work.pending().results.front());
  settle(work, async_op);
  tensor = work.pending().results.front();
  return work;
}

Work fill(std::string_view op, std::vector<Tensor>& tensors, Work work, bool async_op) {
  const std::vector<Tensor>& results = work.pending().results;
  if (!tensors.empty() && tensors.size() != results.size())
    fail<InvalidArgumentError>(
        "[{}] expected {} tensors to fill, one for each rank, or none, got {}", op, results.size(),
        tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) check_like(op, tensors[i], results[i]);
  settle(work, async_op);
  tensors = work.pending().results;
  return work;
}

}  // namespace

Work detail::all_reduce_in_place(Tensor& tensor, const InPlaceReduceOptions& options) {
  warn_if_shared("all_reduce", tensor);
  return fill("all_reduce", tensor,
              all_reduce_async(tensor, {.op = options.op, .group = options.group}),
              options.async_op);
}

Work detail::reduce_in_place(Tensor& tensor, int destination, const InPlaceReduceOptions& options) {
  warn_if_shared("reduce", tensor);
  return fill("reduce", tensor,
              reduce_async(tensor, destination, {.op = options.op, .group = options.group}),
              options.async_op);
}

Work detail::broadcast_in_place(Tensor& tensor, int source, const InPlaceOptions& options) {
  warn_if_shared("broadcast", tensor);
  return fill("broadcast", tensor, broadcast_async(tensor, source, {.group = options.group}),
              options.async_op);
}

Work all_gather(std::vector<Tensor>& tensors, const Tensor& tensor, const InPlaceOptions& options) {
  return fill("all_gather", tensors, all_gather_async(tensor, {.group = options.group}),
              options.async_op);
}

void all_gather_object(std::vector<std::string>& objects, const std::string& object,
                       const CollectiveOptions& options) {
  std::vector<std::string> all = all_gather_object(object, options);
  if (!objects.empty() && objects.size() != all.size())
    fail<InvalidArgumentError>(
        "[all_gather_object] expected {} strings to fill, one for each rank, or none, got {}",
        all.size(), objects.size());
  objects = std::move(all);
}

Work all_gather_into_tensor(Tensor& output, const Tensor& tensor, const InPlaceOptions& options) {
  return fill("all_gather_into_tensor", output,
              all_gather_into_tensor_async(tensor, {.group = options.group}), options.async_op);
}

Work reduce_scatter(Tensor& output, const std::vector<Tensor>& tensors,
                    const InPlaceReduceOptions& options) {
  return fill("reduce_scatter", output,
              reduce_scatter_async(tensors, {.op = options.op, .group = options.group}),
              options.async_op);
}

Work reduce_scatter_tensor(Tensor& output, const Tensor& tensor,
                           const InPlaceReduceOptions& options) {
  return fill("reduce_scatter_tensor", output,
              reduce_scatter_tensor_async(tensor, {.op = options.op, .group = options.group}),
              options.async_op);
}

Work all_to_all(std::vector<Tensor>& outputs, const std::vector<Tensor>& tensors,
                const InPlaceOptions& options) {
  return fill("all_to_all", outputs, all_to_all_async(tensors, {.group = options.group}),
              options.async_op);
}

namespace {

// Receives into a tensor like `tensor` on the device `home`; null: that of the group.
Work start_recv(const Tensor& tensor, int source, const ProcessGroup& group, DeviceImpl* home) {
  Work work = recv_async(tensor.shape(), source, {.dtype = tensor.dtype(), .group = group});
  PendingWork& pending = work.pending();
  const bool traced = !pending.work;
  if (!traced) {
    const DeviceImpl* here = &impl_of(pending.results.front()).device();
    pending.devices.front() = home == here ? nullptr : home;
  }
  return work;
}

void check_defined(const Tensor& tensor) {
  if (!tensor.defined())
    throw InvalidArgumentError(
        "[recv] expected a tensor of the shape and dtype that are received, got an undefined one");
}

}  // namespace

Work irecv(Tensor& tensor, int source, const CollectiveOptions& options) {
  check_defined(tensor);
  return fill("recv", tensor, start_recv(tensor, source, options.group, nullptr), true);
}

void recv(Tensor& tensor, int source, const CollectiveOptions& options) {
  check_defined(tensor);
  DeviceImpl* const home = &impl_of(tensor).device();
  fill("recv", tensor, start_recv(tensor, source, options.group, home), false);
}

}  // namespace tandem::comm
