#include "distribute/job_membership.h"

#include <array>
#include <cstring>
#include <exception>

#include "comm/exchange_bytes.h"
#include "core/log.h"
#include "core/status.h"
#include "device/device_manager.h"
#include "graph/graph.h"
#include "runtime/placement.h"
#include "sync/external_group.h"
#include "tandem/array.h"
#include "tandem/autodiff.h"
#include "tensor/tensor_buffers.h"

namespace tandem::distribute {
namespace {

Buffer bytes_at(void* data, std::size_t bytes) {
  return {data, static_cast<std::int64_t>(bytes), uint8};
}

// A copy of `tensor` on the host, in memory that no other tensor shares.
Tensor own_on_host(const Tensor& tensor) {
  return exclusive_on(DeviceManager::get().host(), tensor);
}

}  // namespace

// Wraps the host's communicator as a group that traced programs can use.
TracedRank JobMembership::traced() {
  std::shared_ptr<CollectiveGroup> group = traced_.lock();
  if (!group) {
    const std::shared_ptr<JobMembership> self = shared_from_this();
    traced_ = group = std::make_shared<ExternalGroup>(
        std::shared_ptr<Communicator>(self, host_.get()),
        ExternalGroupHooks{.begin = [self] { self->check(); },
                           .abort = [self](const std::string& why) { self->abort(why); }});
  }
  return TracedRank({std::move(group), rank()}, DeviceManager::get().host());
}

JobMembership::JobMembership(std::shared_ptr<Job> job, bool owns_job,
                             std::unique_ptr<Communicator> host, int local_replicas)
    : job_(std::move(job)), owns_job_(owns_job), host_(std::move(host)) {
  std::vector<std::int32_t> counts(static_cast<std::size_t>(size()));
  const std::int32_t mine = local_replicas;
  host_->exchange(&mine, sizeof(mine), counts.data());
  for (int worker = 0; worker < size(); ++worker) {
    const int count = counts[static_cast<std::size_t>(worker)];
    num_replicas_ += count;
    if (worker < rank()) first_replica_ += count;
  }
}

JobMembership::~JobMembership() {
  try {
    if (std::uncaught_exceptions() > 0)
      abort(cause_.empty() ? "an exception ended its strategy" : cause_);
    host_.reset();
    if (!owns_job_) return;
    // The first worker runs the rendezvous server. After a failure it stays until the others
    // have seen the failure.
    const bool failed = job_->membership()->failed() || !abort_reason_.empty();
    job_->shut_down(failed ? std::chrono::seconds(5) : std::chrono::seconds(30));
  } catch (const std::exception& error) {
    logging::warn("[MultiWorkerMirroredStrategy] leaving the job: {}", error.what());
  }
}

void JobMembership::check_own() const {
  const std::lock_guard lock(mutex_);
  if (!abort_reason_.empty())
    fail<AbortedError>("[MultiWorkerMirroredStrategy] the job is over: this worker has failed: {}",
                       abort_reason_);
}

void JobMembership::check() const {
  check_own();
  if (job_->membership()->failed()) job_->membership()->throw_failure();
}

void JobMembership::abort(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (!abort_reason_.empty()) return;
  abort_reason_ = reason.empty() ? "for an unknown reason" : reason;
  if (!job_->membership()->failed()) job_->membership()->report(abort_reason_);
}

template <class F>
void JobMembership::attempt(const F& collective) {
  try {
    collective();
  } catch (const std::exception& error) {
    if (cause_.empty()) cause_ = error.what();
    throw;
  }
}

Tensor JobMembership::all_reduce(const Tensor& mine, ReduceOp op, const std::string& what) {
  NoGradScope no_grad;
  if (context.graph) return traced().all_reduce({&mine, 1}, op).front();
  check_own();
  const Tensor sum = own_on_host(mine);
  host_->label(what, calls_++);
  attempt([&] { host_->all_reduce(std::array{buffer_of(sum)}, op)->wait(); });
  return copy_to_device(sum, impl_of(mine).device());
}

Tensor JobMembership::broadcast(const Tensor& mine, const std::string& what) {
  NoGradScope no_grad;
  if (context.graph) return traced().broadcast(mine, 0);
  check_own();
  const Tensor value = own_on_host(mine);
  host_->label(what, calls_++);
  attempt([&] { host_->broadcast(std::array{buffer_of(value)}, 0)->wait(); });
  return copy_to_device(value, impl_of(mine).device());
}

Tensor JobMembership::gather(const Tensor& mine, std::int64_t axis, const std::string& what) {
  NoGradScope no_grad;
  if (axis < 0) axis += mine.rank();
  if (context.graph) {
    if (!mine.shape().fully_defined())
      fail<UnimplementedError>(
          "[{}] expected values of known sizes in a function traced on several workers, got {}: "
          "remove input_signature",
          what, mine.shape().to_string());
    std::vector<std::int64_t> sizes;
    for (const Shape& shape : exchange_shapes(mine, axis, what))
      sizes.push_back(shape.word(static_cast<int>(axis)));
    return concat(traced().all_gather(mine, axis, std::move(sizes)), axis);
  }
  const OnDevice on(DeviceManager::get().host());
  const Tensor local = own_on_host(mine);
  std::vector<Tensor> all;
  std::vector<Buffer> buffers;
  for (const Shape& shape : exchange_shapes(local, axis, what)) {
    all.push_back(make_tensor(DeviceManager::get().host(), shape, local.dtype()));
    buffers.push_back(buffer_of(all.back()));
  }
  attempt([&] { host_->all_gather(buffer_of(local), buffers)->wait(); });
  return concat(all, axis);
}

std::vector<Shape> JobMembership::exchange_shapes(const Tensor& mine, std::int64_t axis,
                                                  const std::string& what) {
  check_own();
  struct ShapeHeader {
    std::int64_t dtype = 0, rank = 0;
    std::array<std::int64_t, kMaxRank> sizes = {};
  };
  ShapeHeader header{.dtype = static_cast<std::int64_t>(mine.dtype()), .rank = mine.rank()};
  for (int i = 0; i < mine.rank(); ++i)
    header.sizes[static_cast<std::size_t>(i)] = mine.size_word(i);
  std::vector<ShapeHeader> headers(static_cast<std::size_t>(size()));
  host_->label(what, calls_++);
  attempt([&] { host_->exchange(&header, sizeof(header), headers.data()); });
  std::vector<Shape> shapes;
  for (const ShapeHeader& theirs : headers) {
    Dims sizes;
    bool same = theirs.dtype == header.dtype && theirs.rank == header.rank;
    for (int i = 0; same && i < mine.rank(); ++i) {
      const auto at = static_cast<std::size_t>(i);
      same = i == axis || theirs.sizes[at] == header.sizes[at];
      sizes.push_back(theirs.sizes[at]);
    }
    if (!same)
      fail<InvalidArgumentError>(
          "[{}] expected equal dtypes, and shapes that differ only along axis {}: those of worker "
          "{} and worker {} differ; the latter has {} {}",
          what, axis, shapes.size(), rank(), name_of(mine.dtype()), mine.shape().to_string());
    shapes.emplace_back(sizes);
  }
  return shapes;
}

std::vector<std::string> JobMembership::gather_bytes(const std::string& mine,
                                                     const std::string& what) {
  check_own();
  host_->label(what, calls_++);
  std::vector<std::string> all;
  attempt([&] {
    all = exchange_bytes(*host_, what + '\n' + mine);
    std::vector<std::string> calls;
    for (std::string& theirs : all) {
      calls.push_back(theirs.substr(0, theirs.find('\n')));
      theirs.erase(0, calls.back().size() + 1);
    }
    for (std::size_t worker = 1; worker < calls.size(); ++worker)
      if (calls[worker] != calls[0])
        fail<InvalidArgumentError>(
            "[MultiWorkerMirroredStrategy] expected the same calls on every worker: worker 0 is at "
            "'{}', worker {} at '{}'",
            calls[0], worker, calls[worker]);
  });
  return all;
}

std::string JobMembership::broadcast_bytes(const std::string& mine, const std::string& what) {
  check_own();
  host_->label(what, calls_++);
  std::int64_t count = static_cast<std::int64_t>(mine.size());
  attempt([&] { host_->broadcast(std::array{Buffer{&count, 1, int64}}, 0)->wait(); });
  std::string value = is_chief() ? mine : std::string(static_cast<std::size_t>(count), '\0');
  attempt([&] { host_->broadcast(std::array{bytes_at(value.data(), value.size())}, 0)->wait(); });
  return value;
}

}  // namespace tandem::distribute
