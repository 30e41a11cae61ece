// The operations on tensors that tandem/hvd.h declares.
#include <algorithm>

#include "core/joined.h"
#include "core/status.h"
#include "hvd/submit.h"
#include "hvd/world.h"
#include "tensor/tensor_impl.h"

namespace tandem::hvd {
namespace {

Handle submitted(OperationRef operation) {
  operation->coordinator.lock()->submit(operation);
  return Handle(std::move(operation));
}

Handle::State& state_of(const Handle& handle) {
  if (!handle.state()) throw FailedPreconditionError("[hvd] an empty handle was used");
  return *handle.state();
}

// The rank within the process set of a rank of the job.
int rank_in_set(const ProcessSetCoordinator& coordinator, int rank, std::string_view what) {
  const auto found = std::find(coordinator.ranks().begin(), coordinator.ranks().end(), rank);
  if (found == coordinator.ranks().end())
    fail<InvalidArgumentError>("[{}] expected a root among the ranks [{}], got {}", what,
                               joined(coordinator.ranks(), ", "), rank);
  return static_cast<int>(found - coordinator.ranks().begin());
}

}  // namespace

bool poll(const Handle& handle) {
  const Handle::State& state = state_of(handle);
  const auto coordinator = state.coordinator.lock();
  return coordinator ? coordinator->poll(state) : state.done.load(std::memory_order_acquire);
}

std::vector<Tensor> synchronize_all(const Handle& handle) {
  Handle::State& state = state_of(handle);
  if (const auto coordinator = state.coordinator.lock()) coordinator->wait(state);
  if (state.error) std::rethrow_exception(state.error);
  std::vector<Tensor> results = state.results;
  for (std::size_t i = 0; i < results.size(); ++i)
    if (state.devices[i]) results[i] = copy_to_device(results[i], *state.devices[i]);
  return results;
}

Tensor synchronize(const Handle& handle) {
  std::vector<Tensor> results = synchronize_all(handle);
  if (results.size() != 1)
    fail<InvalidArgumentError>(
        "[synchronize] expected an operation with one result, got {}; use synchronize_all()",
        results.size());
  return results.front();
}

// --- allreduce ---

Handle grouped_allreduce_async(const std::vector<Tensor>& tensors,
                               const AllreduceOptions& options) {
  if (tensors.empty()) throw InvalidArgumentError("[grouped_allreduce] expected tensors, got none");
  auto coordinator = coordinator_of(options.process_set);
  for (const Tensor& tensor : tensors)
    check_reduction("allreduce", options.op, tensor.dtype(), coordinator->size());
  auto operation = make_operation(
      {.kind = RequestKind::kAllreduce,
       .op = options.op,
       .prescale = options.prescale_factor,
       .postscale = options.postscale_factor,
       .name = name_or_next(options.name, tensors.size() == 1 ? "allreduce" : "grouped_allreduce"),
       .dtypes = {},
       .shapes = {},
       .splits = {}},
      tensors, options.compression, coordinator);
  make_outputs(*operation);
  return submitted(std::move(operation));
}

std::vector<Tensor> grouped_allreduce(const std::vector<Tensor>& tensors,
                                      const AllreduceOptions& options) {
  return synchronize_all(grouped_allreduce_async(tensors, options));
}

Handle allreduce_async(const Tensor& tensor, const AllreduceOptions& options) {
  return grouped_allreduce_async({tensor}, options);
}

Tensor allreduce(const Tensor& tensor, const AllreduceOptions& options) {
  return synchronize(allreduce_async(tensor, options));
}

// --- other operations ---

namespace {

OperationRef plain_operation(RequestKind kind, const Tensor& tensor, const std::string& name,
                             std::string_view kind_name,
                             std::shared_ptr<ProcessSetCoordinator> coordinator) {
  return make_operation({.kind = kind,
                         .name = name_or_next(name, kind_name),
                         .dtypes = {},
                         .shapes = {},
                         .splits = {}},
                        {tensor}, Compression::kNone, std::move(coordinator));
}

}  // namespace

Handle allgather_async(const Tensor& tensor, const OperationOptions& options) {
  return submitted(plain_operation(RequestKind::kAllgather, tensor, options.name, "allgather",
                                   coordinator_of(options.process_set)));
}
Tensor allgather(const Tensor& tensor, const OperationOptions& options) {
  return synchronize(allgather_async(tensor, options));
}

Handle broadcast_async(const Tensor& tensor, int root_rank, const OperationOptions& options) {
  auto coordinator = coordinator_of(options.process_set);
  auto operation = make_operation({.kind = RequestKind::kBroadcast,
                                   .root = rank_in_set(*coordinator, root_rank, "broadcast"),
                                   .name = name_or_next(options.name, "broadcast"),
                                   .dtypes = {},
                                   .shapes = {},
                                   .splits = {}},
                                  {tensor}, Compression::kNone, coordinator);
  make_outputs(*operation);
  return submitted(std::move(operation));
}
Tensor broadcast(const Tensor& tensor, int root_rank, const OperationOptions& options) {
  return synchronize(broadcast_async(tensor, root_rank, options));
}

Handle alltoall_async(const Tensor& tensor, const std::vector<std::int64_t>& splits,
                      const OperationOptions& options) {
  auto coordinator = coordinator_of(options.process_set);
  Request request{.kind = RequestKind::kAlltoall,
                  .name = name_or_next(options.name, "alltoall"),
                  .dtypes = {},
                  .shapes = {},
                  .splits = splits};
  if (splits.empty() && tensor.rank() > 0) {
    if (tensor.size_word(0) % coordinator->size() != 0)
      fail<InvalidArgumentError>(
          "[alltoall] without splits, the first axis ({}) must be divisible by the number of ranks "
          "({})",
          tensor.size_word(0), coordinator->size());
    request.splits.assign(static_cast<std::size_t>(coordinator->size()),
                          tensor.size_word(0) / coordinator->size());
  }
  return submitted(make_operation(std::move(request), {tensor}, Compression::kNone, coordinator));
}

AlltoallResult alltoall(const Tensor& tensor, const std::vector<std::int64_t>& splits,
                        const OperationOptions& options) {
  const Handle handle = alltoall_async(tensor, splits, options);
  Tensor output = synchronize(handle);
  return {std::move(output), received_splits(handle)};
}

std::vector<std::int64_t> received_splits(const Handle& handle) {
  const Handle::State& state = state_of(handle);
  if (state.request->kind != RequestKind::kAlltoall || !poll(handle) || state.error)
    throw FailedPreconditionError("[received_splits] expected an alltoall that is done");
  return state.received_splits;
}

Handle reducescatter_async(const Tensor& tensor, const ReducescatterOptions& options) {
  auto coordinator = coordinator_of(options.process_set);
  if (options.op == kAdasum)
    throw InvalidArgumentError(
        "[reducescatter] Adasum is not supported; expected another operation");
  check_reduction("reducescatter", options.op, tensor.dtype(), coordinator->size());
  return submitted(make_operation({.kind = RequestKind::kReducescatter,
                                   .op = options.op,
                                   .prescale = options.prescale_factor,
                                   .postscale = options.postscale_factor,
                                   .name = name_or_next(options.name, "reducescatter"),
                                   .dtypes = {},
                                   .shapes = {},
                                   .splits = {}},
                                  {tensor}, Compression::kNone, coordinator));
}
Tensor reducescatter(const Tensor& tensor, const ReducescatterOptions& options) {
  return synchronize(reducescatter_async(tensor, options));
}

void barrier(const ProcessSet& process_set) {
  auto operation = std::make_shared<Handle::State>();
  operation->coordinator = coordinator_of(process_set);
  operation->request = std::make_shared<const Request>(Request{.kind = RequestKind::kBarrier,
                                                               .name = name_or_next("", "barrier"),
                                                               .dtypes = {},
                                                               .shapes = {},
                                                               .splits = {}});
  static_cast<void>(synchronize_all(submitted(std::move(operation))));
}

int join(const ProcessSet& process_set) { return coordinator_of(process_set)->join(); }

}  // namespace tandem::hvd
