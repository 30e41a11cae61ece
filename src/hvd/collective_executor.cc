#include "hvd/collective_executor.h"

#include <algorithm>

#include "comm/scaled_copy.h"
#include "core/profile.h"
#include "core/status.h"
#include "hvd/adasum.h"
#include "hvd/timeline.h"
#include "tensor/tensor_impl.h"

namespace tandem::hvd {
namespace {

ReduceOp reduce_op_of(Op op) {
  switch (op) {
    case kAverage: return ReduceOp::kMean;
    case kMin: return ReduceOp::kMin;
    case kMax: return ReduceOp::kMax;
    case kProduct: return ReduceOp::kProduct;
    default: return ReduceOp::kSum;
  }
}

bool is_nowhere(const Agreement& agreement) {
  return std::all_of(agreement.requests.begin(), agreement.requests.end(),
                     [](const RequestRef& request) { return !request || request->absent; });
}

std::byte* at(void* data, std::int64_t elements, DType dtype) {
  return static_cast<std::byte*>(data) + static_cast<std::size_t>(elements) * size_of(dtype);
}

}  // namespace

CollectiveExecutor::CollectiveExecutor(Communicator& communicator, Timeline& timeline,
                                       std::string backend, Complete complete)
    : communicator_(communicator),
      timeline_(timeline),
      backend_(std::move(backend)),
      complete_(std::move(complete)) {}

void CollectiveExecutor::start(std::span<const AgreementRef> ready, const FusionOptions& options,
                               const Take& take) {
  bytes_ = 0;
  const auto reduced = std::make_shared<std::vector<ReadyOperation>>();
  std::vector<AgreementRef> fusible;
  for (const AgreementRef& agreement : ready) {
    OperationRef operation = take(agreement->any().name);
    if (!agreement->error.empty()) {
      if (operation)
        complete_(operation, std::make_exception_ptr(InvalidArgumentError(agreement->error)));
      continue;
    }
    if (agreement->any().kind == RequestKind::kBarrier) {
      if (operation) complete_(operation, nullptr);
      continue;
    }
    if (agreement->any().kind != RequestKind::kAllreduce) {
      start_single(agreement, operation);
      continue;
    }
    if (is_nowhere(*agreement)) {
      if (operation) {
        operation->absent_everywhere = true;
        complete_(operation, nullptr);
      }
      continue;
    }
    reduced->push_back({agreement, std::move(operation), 0});
    fusible.push_back(agreement);
  }
  const std::vector<std::vector<FusionUnit>> batches = fuse(fusible, options);
  for (const auto& batch : batches)
    for (const FusionUnit& unit : batch) ++(*reduced)[unit.index].open;
  for (const auto& batch : batches) start_batch(reduced, batch);
}

// Takes the smallest free bucket that is large enough, else grows the largest.
CollectiveExecutor::PooledBucket& CollectiveExecutor::take_bucket(
    std::span<const std::int64_t> counts, DType dtype) {
  std::size_t bytes = 0;
  for (std::int64_t count : counts) bytes += static_cast<std::size_t>(count) * size_of(dtype);
  PooledBucket* best = nullptr;
  for (PooledBucket& pooled : buckets_) {
    if (pooled.busy || pooled.bucket.kept()) continue;
    const std::size_t capacity = pooled.bucket.capacity();
    const std::size_t present = best ? best->bucket.capacity() : 0;
    if (!best || (present < bytes ? capacity > present : capacity >= bytes && capacity < present))
      best = &pooled;
  }
  if (best)
    best->bucket.assign(counts, dtype);
  else
    best = &buckets_.emplace_back(PooledBucket{Bucket(communicator_, counts, dtype)});
  best->busy = true;
  return *best;
}

void CollectiveExecutor::start_batch(const ReadyList& ready, const std::vector<FusionUnit>& units) {
  const DType dtype = units.front().dtype;
  const Request& common = units.front().agreement->any();
  Batch batch{.ready = ready, .items = {}, .dtype = dtype};
  std::vector<std::int64_t> counts;
  for (const FusionUnit& unit : units) {
    const OperationRef& operation = (*ready)[unit.index].operation;
    const Request& request = operation ? *operation->request : unit.agreement->any();
    for (std::size_t tensor : unit.tensors) {
      batch.items.push_back({unit.index, &request, tensor});
      counts.push_back(request.count(tensor));
    }
  }
  if (!batch.is_contiguous()) batch.pooled = &take_bucket(counts, dtype);
  const Buffer whole = batch.whole();
  bytes_ += static_cast<std::int64_t>(whole.bytes());
  const bool timed = timeline_.on();
  const std::int64_t packing = timed ? profile::now() : 0;
  for (std::size_t i = 0; i < batch.items.size(); ++i) {
    const Item& item = batch.items[i];
    const OperationRef& operation = batch.operation_of(item);
    if (operation && !item.mine->absent) {
      const HostArray& in = operation->in[item.tensor];
      const Buffer to = batch.array(i);
      copy_scaled(to.data, dtype, in.data, in.dtype, to.count, item.mine->prescale);
    } else if (batch.pooled) {
      batch.pooled->bucket.put_zeros(i);
    }
    if (timed && batch.pooled) timeline_.add(item.mine->name, "MEMCPY_IN_FUSION_BUFFER", packing);
  }
  std::shared_ptr<CollectiveWork> work;
  if (common.op == kAdasum) {
    std::vector<Buffer> arrays;
    for (std::size_t i = 0; i < batch.items.size(); ++i) arrays.push_back(batch.array(i));
    work = start_adasum(communicator_, whole, std::move(arrays), scratch_);
  } else if (size() > 1) {
    work = communicator_.all_reduce({&whole, 1}, reduce_op_of(common.op));
  }
  add_pending(std::move(work), RequestKind::kAllreduce, common.name,
              [this, batch = std::move(batch)] { finish_batch(batch); });
}

// Whether the tensors already lie in memory as they would in a bucket.
bool CollectiveExecutor::Batch::is_contiguous() const {
  const OperationRef& first = operation_of(items.front());
  if (!first || !first->bucket) return false;
  std::byte* next = static_cast<std::byte*>(first->in[items.front().tensor].data);
  for (const Item& item : items) {
    const OperationRef& operation = operation_of(item);
    if (!operation || !operation->bucket || operation->bucket.owner_before(first->bucket) ||
        first->bucket.owner_before(operation->bucket))
      return false;
    const HostArray& array = operation->in[item.tensor];
    if (array.dtype != dtype || array.data != next) return false;
    next += Bucket::array_bytes(item.mine->count(item.tensor), array.dtype);
  }
  return true;
}

Buffer CollectiveExecutor::Batch::array(std::size_t index) const {
  if (pooled) return pooled->bucket.array(index);
  const Item& item = items[index];
  return {operation_of(item)->in[item.tensor].data, item.mine->count(item.tensor), dtype};
}

Buffer CollectiveExecutor::Batch::whole() const {
  if (pooled) return pooled->bucket.whole();
  std::size_t bytes = 0;
  for (const Item& item : items) bytes += Bucket::array_bytes(item.mine->count(item.tensor), dtype);
  return {array(0).data, static_cast<std::int64_t>(bytes / size_of(dtype)), dtype};
}

void CollectiveExecutor::finish_batch(const Batch& batch) {
  const bool timed = timeline_.on();
  const std::int64_t unpacking = timed ? profile::now() : 0;
  const std::vector<Item>& items = batch.items;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const Item& item = items[i];
    const OperationRef& operation = batch.operation_of(item);
    if (!operation) continue;
    const Buffer from = batch.array(i);
    const HostArray& out = operation->out[item.tensor];
    copy_scaled(out.data, out.dtype, from.data, batch.dtype, from.count, item.mine->postscale);
    if (timed && batch.pooled)
      timeline_.add(item.mine->name, "MEMCPY_OUT_FUSION_BUFFER", unpacking);
  }
  for (std::size_t i = 0; i < items.size(); ++i) {
    ReadyOperation& ready = (*batch.ready)[items[i].ready];
    const bool last_of_unit = i + 1 == items.size() || items[i + 1].ready != items[i].ready;
    if (last_of_unit && --ready.open == 0 && ready.operation) complete_(ready.operation, nullptr);
  }
  if (batch.pooled) batch.pooled->busy = false;
}

void CollectiveExecutor::add_pending(std::shared_ptr<CollectiveWork> work, RequestKind kind,
                                     const std::string& name, std::function<void()> finish) {
  pending_.push_back({.work = std::move(work),
                      .finish = std::move(finish),
                      .name = timeline_.on() ? name : std::string(),
                      .begun = timeline_.on() ? profile::now() : 0,
                      .kind = kind});
}

bool CollectiveExecutor::advance(bool may_wait) {
  while (!pending_.empty()) {
    LaunchedCollective& pending = pending_.front();
    if (pending.work) {
      if (may_wait)
        pending.work->wait();
      else if (!pending.work->test())
        return false;
    }
    if (pending.begun > 0)
      timeline_.add(pending.name, fmt::format("{}_{}", backend_, upper_name_of(pending.kind)),
                    pending.begun);
    pending.finish();
    pending_.pop_front();
  }
  return true;
}

// --- operations that are not fused ---

void CollectiveExecutor::start_single(const AgreementRef& agreement,
                                      const OperationRef& operation) {
  TANDEM_ASSERT(operation);  // only allreduce and barrier support ranks that have joined
  std::function<void()> finish;
  std::shared_ptr<CollectiveWork> work;
  switch (agreement->any().kind) {
    case RequestKind::kAllgather: work = start_allgather(*agreement, *operation); break;
    case RequestKind::kBroadcast: work = start_broadcast(*agreement, *operation); break;
    case RequestKind::kAlltoall: work = start_alltoall(*agreement, *operation); break;
    default: work = start_reducescatter(*agreement, *operation, finish); break;
  }
  add_pending(std::move(work), agreement->any().kind, agreement->any().name,
              [this, agreement, operation, finish = std::move(finish)] {
                if (finish) finish();
                complete_(operation, nullptr);
              });
}

namespace {

Tensor make_result(const Handle::State& operation, std::int64_t rows) {
  Dims shape = operation.request->shapes[0];
  shape[0] = rows;
  return make_tensor(impl_of(operation.inputs[0]).device(), Shape(shape),
                     operation.request->dtypes[0]);
}

std::int64_t row_size(const Request& request) {
  std::int64_t size = 1;
  for (int axis = 1; axis < request.shapes[0].size(); ++axis) size *= request.shapes[0][axis];
  return size;
}

// Adjacent buffers of the given numbers of rows.
std::vector<Buffer> row_buffers(void* data, std::span<const std::int64_t> rows,
                                const Request& request) {
  const std::int64_t row = row_size(request);
  const DType dtype = request.dtypes[0];
  std::vector<Buffer> buffers;
  std::int64_t offset = 0;
  for (std::int64_t count : rows) {
    buffers.push_back({at(data, offset, dtype), count * row, dtype});
    offset += count * row;
  }
  return buffers;
}

std::int64_t sum(std::span<const std::int64_t> values) {
  std::int64_t total = 0;
  for (std::int64_t value : values) total += value;
  return total;
}

}  // namespace

std::shared_ptr<CollectiveWork> CollectiveExecutor::start_allgather(const Agreement& agreement,
                                                                    Handle::State& operation) {
  std::vector<std::int64_t> rows;
  for (const RequestRef& request : agreement.requests) rows.push_back(request->shapes[0][0]);
  operation.results = {make_result(operation, sum(rows))};
  const std::vector<Buffer> gathered =
      row_buffers(impl_of(operation.results[0]).data(), rows, *operation.request);
  const Buffer mine = {operation.in[0].data, operation.request->count(0), operation.in[0].dtype};
  bytes_ += static_cast<std::int64_t>(mine.bytes());
  return communicator_.all_gather(mine, gathered);
}

std::shared_ptr<CollectiveWork> CollectiveExecutor::start_broadcast(const Agreement&,
                                                                    Handle::State& operation) {
  const Request& request = *operation.request;
  std::vector<Buffer> parts;
  for (std::size_t i = 0; i < request.dtypes.size(); ++i) {
    parts.push_back({operation.out[i].data, request.count(i), request.dtypes[i]});
    if (communicator_.rank() == request.root)
      copy_scaled(parts.back().data, parts.back().dtype, operation.in[i].data, parts.back().dtype,
                  parts.back().count, 1.0);
    bytes_ += static_cast<std::int64_t>(parts.back().bytes());
  }
  return communicator_.broadcast(parts, request.root);
}

std::shared_ptr<CollectiveWork> CollectiveExecutor::start_alltoall(const Agreement& agreement,
                                                                   Handle::State& operation) {
  const Request& request = *operation.request;
  operation.received_splits.clear();
  for (const RequestRef& theirs : agreement.requests)
    operation.received_splits.push_back(theirs->splits[rank()]);
  operation.results = {make_result(operation, sum(operation.received_splits))};
  const std::vector<Buffer> sent = row_buffers(operation.in[0].data, request.splits, request);
  const std::vector<Buffer> received =
      row_buffers(impl_of(operation.results[0]).data(), operation.received_splits, request);
  return communicator_.all_to_all(sent, received);
}

std::shared_ptr<CollectiveWork> CollectiveExecutor::start_reducescatter(
    const Agreement&, Handle::State& operation, std::function<void()>& finish) {
  const Request& request = *operation.request;
  const DType dtype = request.dtypes[0];
  const std::int64_t all = request.shapes[0][0], ranks = communicator_.size();
  std::vector<std::int64_t> rows;
  for (std::int64_t r = 0; r < ranks; ++r) rows.push_back(all / ranks + (r < all % ranks ? 1 : 0));
  operation.results = {make_result(operation, rows[rank()])};
  const std::int64_t count[] = {request.count(0)};
  PooledBucket& pooled = take_bucket(count, dtype);
  Bucket& bucket = pooled.bucket;
  bucket.put(0, operation.in[0].data, dtype, request.prescale);
  const std::vector<Buffer> parts = row_buffers(bucket.array(0).data, rows, request);
  const Buffer mine = {impl_of(operation.results[0]).data(), parts[rank()].count, dtype};
  bytes_ += static_cast<std::int64_t>(mine.bytes());
  finish = [mine, &pooled, scale = request.postscale] {
    copy_scaled(mine.data, mine.dtype, mine.data, mine.dtype, mine.count, scale);
    pooled.busy = false;
  };
  return communicator_.reduce_scatter(parts, mine, reduce_op_of(request.op));
}

}  // namespace tandem::hvd
