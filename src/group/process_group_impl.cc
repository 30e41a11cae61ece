#include "group/process_group_impl.h"

#include <algorithm>
#include <numeric>

#include "core/joined.h"
#include "core/log.h"
#include "core/status.h"
#include "group/connect.h"
#include "runtime/placement.h"
#include "sync/external_group.h"

namespace tandem::comm {
namespace {

std::vector<int> all_ranks(int size) {
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

// MPI cannot cancel collectives: after a failure it may still write to the memory.
void keep_for_ever(std::deque<std::shared_ptr<PendingWork>> pending) {
  static auto& kept = *new std::vector<std::shared_ptr<PendingWork>>;
  kept.insert(kept.end(), pending.begin(), pending.end());
}

}  // namespace

ProcessGroupImpl::ProcessGroupImpl(std::shared_ptr<Job> job, std::string backend,
                                   std::chrono::milliseconds time_limit)
    : job_(std::move(job)),
      backend_(std::move(backend)),
      name_("world"),
      time_limit_(time_limit),
      ranks_(all_ranks(job_->size())),
      rank_(job_->rank()) {}

ProcessGroupImpl::ProcessGroupImpl(const ProcessGroupImpl& world, std::vector<int> ranks,
                                   std::string name, std::unique_ptr<Communicator> communicator)
    : job_(world.job_),
      backend_(world.backend_),
      name_(std::move(name)),
      time_limit_(world.time_limit_),
      ranks_(std::move(ranks)),
      rank_(communicator ? communicator->rank() : -1),
      communicator_(std::move(communicator)) {}

ProcessGroupImpl::~ProcessGroupImpl() { close(); }

int ProcessGroupImpl::rank_of(int job_rank, std::string_view op) const {
  const auto found = std::find(ranks_.begin(), ranks_.end(), job_rank);
  if (found == ranks_.end())
    fail<InvalidArgumentError>("[{}] Global rank {} is not part of group [{}]", op, job_rank,
                               joined(ranks_, ", "));
  return static_cast<int>(found - ranks_.begin());
}

void ProcessGroupImpl::require_use(std::string_view op) const {
  if (closed_)
    fail<FailedPreconditionError>("[{}] the process group was destroyed (destroy_process_group)",
                                  op);
  if (rank_ < 0)
    fail<InvalidArgumentError>("[{}] this process, global rank {}, is not part of group [{}]", op,
                               job_->rank(), joined(ranks_, ", "));
}

const std::shared_ptr<Communicator>& ProcessGroupImpl::shared_communicator() {
  require_use("process group");
  if (!communicator_)
    communicator_ = connect(*job_, place_constant("a process group"),
                            {.backend = backend_, .time_limit = time_limit_});
  return communicator_;
}

const std::shared_ptr<const CollectiveMember>& ProcessGroupImpl::member() {
  if (!member_)
    member_ = std::make_shared<const CollectiveMember>(
        CollectiveMember{std::make_shared<ExternalGroup>(shared_communicator()), rank_});
  return member_;
}

std::unique_ptr<Communicator> ProcessGroupImpl::duplicate(DeviceImpl& device) {
  Communicator& own = communicator();
  if (&device == &own.device()) return own.split(all_ranks(size()));
  if (ranks_ == all_ranks(job_->size()))
    return connect(*job_, device, {.backend = backend_, .time_limit = time_limit_});
  if (own.device().type() == DeviceType::kCpu && device.type() == DeviceType::kCpu)
    return own.split(all_ranks(size()));  // their memory is the host's
  fail<UnimplementedError>(
      "[process group] group [{}] works on {}; {} needs a group of all ranks. Move what it works "
      "on",
      joined(ranks_, ", "), own.device().full_name(), device.full_name());
}

void ProcessGroupImpl::keep(std::shared_ptr<PendingWork> pending) {
  pending_.push_back(std::move(pending));
  drop_ended();
}

void ProcessGroupImpl::drop_ended() {
  for (const auto& pending : pending_)
    if (pending.use_count() == 1 && pending->work && pending->work->test()) pending->work.reset();
  std::erase_if(pending_, [](const auto& pending) { return !pending->work; });
}

void ProcessGroupImpl::close() {
  if (closed_) return;
  closed_ = true;
  try {
    for (const auto& pending : pending_) {
      if (pending->work) pending->work->wait();
      pending->work.reset();
    }
    pending_.clear();
  } catch (const std::exception& error) {
    logging::warn("[destroy_process_group] a collective that was under way failed: {}",
                  error.what());
  }
  member_.reset();
  communicator_.reset();
  if (backend_ == "mpi" || backend_ == "hierarchical" || backend_ == "transport")
    keep_for_ever(std::move(pending_));
  pending_.clear();
}

}  // namespace tandem::comm
