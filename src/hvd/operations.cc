// The operations on tensors of tandem/hvd.h.
#include <algorithm>

#include "core/status.h"
#include "hvd/submit.h"
#include "hvd/world.h"
#include "tensor/tensor_impl.h"

namespace tandem::hvd {
namespace {

Handle submitted(OperationRef operation) {
  operation->lane.lock()->submit(operation);
  return Handle(std::move(operation));
}

Handle::State& state_of(const Handle& handle) {
  if (!handle.state()) throw FailedPreconditionError("[hvd] an empty handle was used");
  return *handle.state();
}

// The place of a rank of the job among those of a set.
int place_of(const Lane& lane, int rank, std::string_view what) {
  const auto found = std::find(lane.ranks().begin(), lane.ranks().end(), rank);
  if (found == lane.ranks().end())
    fail<InvalidArgumentError>("[{}] expected a root among the ranks [{}], got {}", what,
                               fmt::join(lane.ranks(), ", "), rank);
  return static_cast<int>(found - lane.ranks().begin());
}

}  // namespace

bool poll(const Handle& handle) { return state_of(handle).done.load(std::memory_order_acquire); }

std::vector<Tensor> synchronize_all(const Handle& handle) {
  Handle::State& state = state_of(handle);
  if (const auto lane = state.lane.lock()) lane->wait(state);
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
  auto lane = lane_of(options.process_set);
  for (const Tensor& tensor : tensors)
    check_reduction("allreduce", options.op, tensor.dtype(), lane->size());
  auto operation = make_operation(
      {.kind = Kind::kAllreduce,
       .op = options.op,
       .prescale = options.prescale_factor,
       .postscale = options.postscale_factor,
       .name = name_or_next(options.name, tensors.size() == 1 ? "allreduce" : "grouped_allreduce"),
       .dtypes = {},
       .shapes = {},
       .splits = {}},
      tensors, options.compression, lane);
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

// --- others ---

namespace {

OperationRef plain_operation(Kind kind, const Tensor& tensor, const std::string& name,
                             std::string_view kind_name, std::shared_ptr<Lane> lane) {
  return make_operation({.kind = kind,
                         .name = name_or_next(name, kind_name),
                         .dtypes = {},
                         .shapes = {},
                         .splits = {}},
                        {tensor}, Compression::kNone, std::move(lane));
}

}  // namespace

Handle allgather_async(const Tensor& tensor, const OperationOptions& options) {
  return submitted(plain_operation(Kind::kAllgather, tensor, options.name, "allgather",
                                   lane_of(options.process_set)));
}
Tensor allgather(const Tensor& tensor, const OperationOptions& options) {
  return synchronize(allgather_async(tensor, options));
}

Handle broadcast_async(const Tensor& tensor, int root_rank, const OperationOptions& options) {
  auto lane = lane_of(options.process_set);
  auto operation = make_operation({.kind = Kind::kBroadcast,
                                   .root = place_of(*lane, root_rank, "broadcast"),
                                   .name = name_or_next(options.name, "broadcast"),
                                   .dtypes = {},
                                   .shapes = {},
                                   .splits = {}},
                                  {tensor}, Compression::kNone, lane);
  make_outputs(*operation);
  return submitted(std::move(operation));
}
Tensor broadcast(const Tensor& tensor, int root_rank, const OperationOptions& options) {
  return synchronize(broadcast_async(tensor, root_rank, options));
}

Handle alltoall_async(const Tensor& tensor, const std::vector<std::int64_t>& splits,
                      const OperationOptions& options) {
  auto lane = lane_of(options.process_set);
  Request request{.kind = Kind::kAlltoall,
                  .name = name_or_next(options.name, "alltoall"),
                  .dtypes = {},
                  .shapes = {},
                  .splits = splits};
  if (splits.empty() && tensor.rank() > 0) {
    if (tensor.dim(0) % lane->size() != 0)
      fail<InvalidArgumentError>(
          "[alltoall] without splits, the first axis ({}) must be divisible by the number of ranks "
          "({})",
          tensor.dim(0), lane->size());
    request.splits.assign(static_cast<std::size_t>(lane->size()), tensor.dim(0) / lane->size());
  }
  return submitted(make_operation(std::move(request), {tensor}, Compression::kNone, lane));
}

AlltoallResult alltoall(const Tensor& tensor, const std::vector<std::int64_t>& splits,
                        const OperationOptions& options) {
  const Handle handle = alltoall_async(tensor, splits, options);
  Tensor output = synchronize(handle);
  return {std::move(output), received_splits(handle)};
}

std::vector<std::int64_t> received_splits(const Handle& handle) {
  const Handle::State& state = state_of(handle);
  if (state.request->kind != Kind::kAlltoall || !poll(handle) || state.error)
    throw FailedPreconditionError("[received_splits] expected an alltoall that is done");
  return state.received_splits;
}

Handle reducescatter_async(const Tensor& tensor, const ReducescatterOptions& options) {
  auto lane = lane_of(options.process_set);
  if (options.op == kAdasum)
    throw InvalidArgumentError(
        "[reducescatter] Adasum is not supported; expected another operation");
  check_reduction("reducescatter", options.op, tensor.dtype(), lane->size());
  return submitted(make_operation({.kind = Kind::kReducescatter,
                                   .op = options.op,
                                   .prescale = options.prescale_factor,
                                   .postscale = options.postscale_factor,
                                   .name = name_or_next(options.name, "reducescatter"),
                                   .dtypes = {},
                                   .shapes = {},
                                   .splits = {}},
                                  {tensor}, Compression::kNone, lane));
}
Tensor reducescatter(const Tensor& tensor, const ReducescatterOptions& options) {
  return synchronize(reducescatter_async(tensor, options));
}

void barrier(const ProcessSet& process_set) {
  auto operation = std::make_shared<Handle::State>();
  operation->lane = lane_of(process_set);
  operation->request = std::make_shared<const Request>(Request{.kind = Kind::kBarrier,
                                                               .name = name_or_next("", "barrier"),
                                                               .dtypes = {},
                                                               .shapes = {},
                                                               .splits = {}});
  synchronize_all(submitted(std::move(operation)));
}

int join(const ProcessSet& process_set) { return lane_of(process_set)->join(); }

}  // namespace tandem::hvd
