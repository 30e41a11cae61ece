#include <functional>
#include <utility>

#include "core/status.h"
#include "graph/graph.h"
#include "group/process_group_impl.h"
#include "runtime/placement.h"
#include "runtime/traced_collective.h"
#include "tandem/array.h"
#include "tensor/tensor_buffers.h"

namespace tandem::comm {
namespace {

using Group = std::shared_ptr<ProcessGroupImpl>;

Group usable(const ProcessGroup& group, std::string_view op) {
  Group impl = detail::group_of(group, op);
  impl->require_use(op);
  return impl;
}

// The device that the result for `tensor` is copied to; null: it is on the group's device.
DeviceImpl* home_of(const Tensor& tensor, const DeviceImpl& device) {
  DeviceImpl& home = impl_of(tensor).device();
  return &home == &device ? nullptr : &home;
}

Work start(Group group, PendingWork pending,
           const std::function<std::shared_ptr<CollectiveWork>(Communicator&)>& call) {
  auto started = std::make_shared<PendingWork>(std::move(pending));
  started->work = call(group->communicator());
  group->keep(started);
  return {std::move(group), std::move(started)};
}

// While tracing: the outputs of the collective's node.
std::vector<Tensor> traced(const Group& group, const OpDef& op, AttrsRef attrs,
                           std::span<const Tensor> tensors) {
  return trace_collective(op, attrs, tensors, group->member(), group->device());
}

// A work that is already complete.
Work traced_work(Group group, std::vector<Tensor> results) {
  auto pending = std::make_shared<PendingWork>();
  pending->results = std::move(results);
  return {std::move(group), std::move(pending)};
}

std::size_t index(int rank) { return static_cast<std::size_t>(rank); }

void check_count(std::string_view op, const std::vector<Tensor>& tensors, int size) {
  if (tensors.size() != index(size))
    fail<InvalidArgumentError>("[{}] expected a tensor for each of {} ranks, got {}", op, size,
                               tensors.size());
}

// Rank r's part of a tensor of `size` equal, contiguous parts.
std::vector<Buffer> equal_parts(const Tensor& tensor, int size) {
  const Buffer whole = buffer_of(tensor);
  Buffer part = {whole.data, whole.count / size, whole.dtype};
  std::vector<Buffer> parts;
  for (int rank = 0; rank < size; ++rank) {
    parts.push_back(part);
    part.data = static_cast<std::byte*>(part.data) + part.bytes();
  }
  return parts;
}

std::vector<Buffer> buffers_of(const std::vector<Tensor>& tensors) {
  std::vector<Buffer> buffers;
  buffers.reserve(tensors.size());
  for (const Tensor& tensor : tensors) buffers.push_back(buffer_of(tensor));
  return buffers;
}

std::vector<Tensor> copies_on(DeviceImpl& device, const std::vector<Tensor>& tensors) {
  std::vector<Tensor> copies;
  copies.reserve(tensors.size());
  for (const Tensor& tensor : tensors) copies.push_back(copy_to_device(tensor, device));
  return copies;
}

// While tracing: every rank's tensor.
std::vector<Tensor> trace_gathering(const Group& group, const Tensor& tensor) {
  return traced(group, kCollectiveGather, CollectiveGatherAttrs{group->rank(), group->size()},
                {&tensor, 1});
}

// `gathered` has the memory for all ranks' tensors.
Work start_gathering(Group group, const Tensor& tensor, const Tensor& gathered,
                     std::vector<Tensor> results) {
  DeviceImpl& device = group->device();
  const Tensor mine = copy_to_device(tensor, device);
  const std::vector<DeviceImpl*> devices(results.size(), home_of(tensor, device));
  const std::vector<Buffer> parts = equal_parts(gathered, group->size());
  return start(std::move(group), {{mine, gathered}, std::move(results), devices},
               [&](Communicator& c) { return c.all_gather(buffer_of(mine), parts); });
}

// While tracing: the reduction of the ranks' tensors for this rank.
Work trace_scattering(const Group& group, const std::vector<Tensor>& tensors, ReduceOp op) {
  return traced_work(group, {traced(group, kCollectiveReduceScatter, CollectiveReduceAttrs{op},
                                    tensors)[index(group->rank())]});
}

Work start_scattering(Group group, const Tensor& like, std::vector<Tensor> memory,
                      const std::vector<Buffer>& parts, const Shape& shape, ReduceOp op) {
  DeviceImpl& device = group->device();
  Tensor mine = make_tensor(device, shape, like.dtype(), "reduce_scatter");
  memory.push_back(mine);
  return start(std::move(group), {std::move(memory), {mine}, {home_of(like, device)}},
               [&](Communicator& c) { return c.reduce_scatter(parts, buffer_of(mine), op); });
}

}  // namespace

// --- works ---

void Work::wait() {
  if (!pending_->work) return;
  pending_->work->wait();
  pending_->work.reset();
  for (std::size_t i = 0; i < pending_->results.size(); ++i)
    if (DeviceImpl* home = pending_->devices[i])
      pending_->results[i] = copy_to_device(pending_->results[i], *home);
  pending_->memory.clear();
}

bool Work::is_completed() { return !pending_->work || pending_->work->test(); }

std::vector<Tensor> Work::results() {
  wait();
  return pending_->results;
}

Tensor Work::result() {
  wait();
  if (pending_->results.size() != 1)
    fail<FailedPreconditionError>("[Work] the collective has {} results; ask for results()",
                                  pending_->results.size());
  return pending_->results.front();
}

// --- collectives ---

Work all_reduce_async(Tensor tensor, const ReduceOptions& options) {
  Group group = usable(options.group, "all_reduce");
  if (context.graph)
    return traced_work(
        group, traced(group, kCollectiveReduce, CollectiveReduceAttrs{options.op}, {&tensor, 1}));
  DeviceImpl& device = group->device();
  DeviceImpl* const home = home_of(tensor, device);
  const Tensor own = exclusive_on(device, std::move(tensor));
  const Buffer part = buffer_of(own);
  return start(std::move(group), {{own}, {own}, {home}}, [&](Communicator& c) {
    return c.all_reduce({&part, 1}, options.op);
  });
}

Work reduce_async(Tensor tensor, int destination, const ReduceOptions& options) {
  Group group = usable(options.group, "reduce");
  const int root = group->rank_of(destination, "reduce");
  if (context.graph)
    return traced_work(group, traced(group, kCollectiveReduceTo,
                                     CollectiveReduceToAttrs{options.op, root}, {&tensor, 1}));
  DeviceImpl& device = group->device();
  DeviceImpl* const home = home_of(tensor, device);
  // On other ranks the tensor is only read.
  const Tensor own = group->rank() == root ? exclusive_on(device, std::move(tensor))
                                           : copy_to_device(tensor, device);
  const Buffer part = buffer_of(own);
  return start(std::move(group), {{own}, {own.detach()}, {home}}, [&](Communicator& c) {
    return c.reduce({&part, 1}, options.op, root);
  });
}

Work broadcast_async(Tensor tensor, int source, const CollectiveOptions& options) {
  Group group = usable(options.group, "broadcast");
  const int root = group->rank_of(source, "broadcast");
  if (context.graph)
    return traced_work(
        group, traced(group, kCollectiveBroadcast, CollectiveBroadcastAttrs{root}, {&tensor, 1}));
  DeviceImpl& device = group->device();
  DeviceImpl* const home = home_of(tensor, device);
  // The source's tensor is only read; the contents of the others are overwritten.
  const Tensor own = group->rank() == root
                         ? copy_to_device(tensor, device)
                         : make_tensor(device, tensor.shape(), tensor.dtype(), "broadcast");
  const Buffer part = buffer_of(own);
  return start(std::move(group), {{own}, {own.detach()}, {home}}, [&](Communicator& c) {
    return c.broadcast({&part, 1}, root);
  });
}

Work all_gather_async(const Tensor& tensor, const CollectiveOptions& options) {
  Group group = usable(options.group, "all_gather");
  if (context.graph) return traced_work(group, trace_gathering(group, tensor));
  const Tensor gathered =
      make_tensor(group->device(), {tensor.size() * group->size()}, tensor.dtype(), "all_gather");
  std::vector<Tensor> results;
  for (int rank = 0; rank < group->size(); ++rank)
    results.push_back(make_view(gathered, tensor.shape(), rank * tensor.bytes()));
  return start_gathering(std::move(group), tensor, gathered, std::move(results));
}

Work all_gather_into_tensor_async(const Tensor& tensor, const CollectiveOptions& options) {
  Group group = usable(options.group, "all_gather_into_tensor");
  if (context.graph) {
    const std::vector<Tensor> parts = trace_gathering(group, tensor);
    return traced_work(group, {tensor.rank() == 0 ? stack(parts) : concat(parts, 0)});
  }
  Shape shape = tensor.shape();
  if (shape.rank() == 0)
    shape = {group->size()};
  else
    shape.set(0, shape.word(0) * group->size());
  const Tensor gathered =
      make_tensor(group->device(), shape, tensor.dtype(), "all_gather_into_tensor");
  return start_gathering(std::move(group), tensor, gathered, {gathered});
}

Work reduce_scatter_async(const std::vector<Tensor>& tensors, const ReduceOptions& options) {
  Group group = usable(options.group, "reduce_scatter");
  check_count("reduce_scatter", tensors, group->size());
  if (context.graph) return trace_scattering(group, tensors, options.op);
  const Tensor& like = tensors[index(group->rank())];
  std::vector<Tensor> given = copies_on(group->device(), tensors);
  const std::vector<Buffer> parts = buffers_of(given);
  return start_scattering(std::move(group), like, std::move(given), parts, like.shape(),
                          options.op);
}

Work reduce_scatter_tensor_async(const Tensor& tensor, const ReduceOptions& options) {
  Group group = usable(options.group, "reduce_scatter_tensor");
  Shape shape = tensor.shape();
  const int size = group->size();
  if (shape.rank() == 0 || (shape.word(0) >= 0 && shape.word(0) % size != 0))
    fail<InvalidArgumentError>(
        "[reduce_scatter_tensor] expected a first axis that {} ranks can share evenly, got shape "
        "{}",
        size, shape.to_string());
  if (context.graph) return trace_scattering(group, split(tensor, size, {.axis = 0}), options.op);
  shape.set(0, shape.word(0) / size);
  const Tensor given = copy_to_device(tensor, group->device());
  return start_scattering(std::move(group), tensor, {given}, equal_parts(given, size), shape,
                          options.op);
}

namespace {

// The shape of a tensor that is sent to another rank.
struct SentShape {
  std::int32_t rank = 0;
  std::array<std::int64_t, kMaxRank> sizes{};
};

// Returns the shape of the tensor that each rank sends to this one.
std::vector<Shape> exchange_shapes(Communicator& communicator, const std::vector<Tensor>& tensors) {
  std::vector<SentShape> mine(tensors.size()), all(tensors.size() * tensors.size());
  for (std::size_t to = 0; to < tensors.size(); ++to) {
    const Shape& shape = tensors[to].shape();
    mine[to].rank = shape.rank();
    std::copy(shape.words().begin(), shape.words().end(), mine[to].sizes.begin());
  }
  communicator.exchange(mine.data(), mine.size() * sizeof(SentShape), all.data());
  std::vector<Shape> shapes;
  for (std::size_t from = 0; from < tensors.size(); ++from) {
    const SentShape& sent = all[from * tensors.size() + index(communicator.rank())];
    shapes.emplace_back(std::span(sent.sizes).first(index(sent.rank)));
  }
  return shapes;
}

}  // namespace

Work all_to_all_async(const std::vector<Tensor>& tensors, const CollectiveOptions& options) {
  Group group = usable(options.group, "all_to_all");
  check_count("all_to_all", tensors, group->size());
  if (context.graph) {
    const std::vector<Tensor> outputs = traced(group, kCollectiveAllToAll, NoAttrs(), tensors);
    return traced_work(
        group, {outputs.end() - static_cast<std::ptrdiff_t>(tensors.size()), outputs.end()});
  }
  DeviceImpl& device = group->device();
  PendingWork pending;
  pending.memory = copies_on(device, tensors);
  const std::vector<Buffer> sent = buffers_of(pending.memory);
  for (const Shape& shape : exchange_shapes(group->communicator(), tensors))
    pending.results.push_back(make_tensor(device, shape, tensors.front().dtype(), "all_to_all"));
  pending.devices.assign(tensors.size(), home_of(tensors[index(group->rank())], device));
  const std::vector<Buffer> received = buffers_of(pending.results);
  return start(std::move(group), std::move(pending),
               [&](Communicator& c) { return c.all_to_all(sent, received); });
}

Work send_async(const Tensor& tensor, int destination, const CollectiveOptions& options) {
  Group group = usable(options.group, "send");
  const int peer = group->rank_of(destination, "send");
  if (context.graph) {
    traced(group, kCollectiveSend, CollectiveSendAttrs{peer}, {&tensor, 1});
    return traced_work(group, {});
  }
  const Tensor given = copy_to_device(tensor, group->device());
  return start(std::move(group), {{given}, {}, {}},
               [&](Communicator& c) { return c.send(buffer_of(given), peer); });
}

Work recv_async(const Shape& shape, int source, const ReceiveOptions& options) {
  Group group = usable(options.group, "recv");
  const int peer = group->rank_of(source, "recv");
  if (!shape.fully_defined())
    fail<InvalidArgumentError>("[recv] expected a shape of known sizes, got {}", shape.to_string());
  if (context.graph) {
    return traced_work(group, traced(group, kCollectiveReceive,
                                     CollectiveReceiveAttrs{peer, options.dtype, shape}, {}));
  }
  DeviceImpl& device = group->device();
  DeviceImpl& home = place_constant("recv");
  const Tensor taken = make_tensor(device, shape, options.dtype, "recv");
  return start(std::move(group), {{taken}, {taken}, {&home == &device ? nullptr : &home}},
               [&](Communicator& c) { return c.recv(buffer_of(taken), peer); });
}

Work barrier_async(const CollectiveOptions& options) {
  Group group = usable(options.group, "barrier");
  if (context.graph) {
    traced(group, kCollectiveBarrier, NoAttrs(), {});
    return traced_work(group, {});
  }
  return start(std::move(group), {}, [](Communicator& c) { return c.barrier(); });
}

}  // namespace tandem::comm
