// This process's groups: the default group and those derived from it.
#include <mutex>
#include <set>

#include "core/log.h"
#include "core/mutex.h"
#include "core/status.h"
#include "group/connect.h"
#include "group/process_group_impl.h"

namespace tandem::comm {
namespace {

struct Groups {
  std::mutex mutex;
  const HeldAtFork held_at_fork{mutex};
  bool initializing = false;
  std::shared_ptr<ProcessGroupImpl> world;
  std::vector<std::shared_ptr<ProcessGroupImpl>> others;
  int named = 0;  // number of groups derived from the world
};

// Never destroyed: a process that exits without destroy_process_group() counts as failed.
Groups& groups() {
  static auto& instance = *new Groups;
  return instance;
}

std::shared_ptr<ProcessGroupImpl> make_world(const InitOptions& options) {
  check_backend(options.backend);
  RendezvousOptions meeting;
  meeting.rank = options.rank;
  meeting.world_size = options.world_size;
  meeting.timeout = options.timeout;
  meeting.silence = options.silence_limit;
  std::shared_ptr<Job> job = rendezvous(options.init_method, meeting);
  const std::string backend =
      choose_backend(*job, {.backend = options.backend, .time_limit = options.timeout});
  return std::make_shared<ProcessGroupImpl>(std::move(job), backend, options.timeout);
}

void check_ranks(const std::vector<int>& ranks, int world_size) {
  std::set<int> seen;
  for (const int rank : ranks) {
    if (rank < 0 || rank >= world_size)
      fail<InvalidArgumentError>(
          "[new_group] the new group's rank should be within the world_size set by "
          "init_process_group: expected ranks of 0 to {}, got {}",
          world_size - 1, rank);
    if (!seen.insert(rank).second)
      fail<InvalidArgumentError>("[new_group] expected each rank once, got {} twice", rank);
  }
}

}  // namespace

namespace detail {

std::shared_ptr<ProcessGroupImpl> default_group(std::string_view op) {
  const std::scoped_lock lock(groups().mutex);
  if (!groups().world)
    fail<FailedPreconditionError>(
        "[{}] Default process group has not been initialized, please make sure to call "
        "init_process_group.",
        op);
  return groups().world;
}

std::shared_ptr<ProcessGroupImpl> group_of(const ProcessGroup& group, std::string_view op) {
  return group.impl() ? group.impl() : default_group(op);
}

void report_failure(const std::string& reason) noexcept {
  std::shared_ptr<ProcessGroupImpl> world;
  {
    const std::scoped_lock lock(groups().mutex);
    world = groups().world;
  }
  try {
    if (world) world->job()->membership()->report(reason);
  } catch (const std::exception& error) {
    logging::warn("could not report a failure to the other ranks: {}", error.what());
  }
}

}  // namespace detail

int ProcessGroup::rank() const { return get_rank(*this); }
int ProcessGroup::size() const { return get_world_size(*this); }
std::vector<int> ProcessGroup::ranks() const { return detail::group_of(*this, "ranks")->ranks(); }
std::string ProcessGroup::backend() const { return get_backend(*this); }

void init_process_group(const InitOptions& options) {
  {
    const std::scoped_lock lock(groups().mutex);
    if (groups().world || groups().initializing)
      throw FailedPreconditionError(
          "[init_process_group] trying to initialize the default process group twice!");
    groups().initializing = true;
  }
  std::shared_ptr<ProcessGroupImpl> world;
  try {
    world = make_world(options);
  } catch (...) {
    const std::scoped_lock lock(groups().mutex);
    groups().initializing = false;
    throw;
  }
  const std::scoped_lock lock(groups().mutex);
  groups().initializing = false;
  groups().world = std::move(world);
  groups().named = 0;
}

bool is_initialized() {
  const std::scoped_lock lock(groups().mutex);
  return groups().world != nullptr;
}

void destroy_process_group(const ProcessGroup& group) {
  const std::shared_ptr<ProcessGroupImpl> ending = detail::group_of(group, "destroy_process_group");
  std::vector<std::shared_ptr<ProcessGroupImpl>> closing;
  bool all = false;
  {
    const std::scoped_lock lock(groups().mutex);
    all = ending == groups().world;
    if (all) closing.swap(groups().others);
    std::erase(groups().others, ending);
    if (all) groups().world.reset();
  }
  closing.push_back(ending);
  for (const auto& each : closing) each->close();
  if (all) ending->job()->shut_down();
}

int get_rank(const ProcessGroup& group) { return detail::group_of(group, "get_rank")->rank(); }
int get_world_size(const ProcessGroup& group) {
  return detail::group_of(group, "get_world_size")->size();
}
std::string get_backend(const ProcessGroup& group) {
  return detail::group_of(group, "get_backend")->backend();
}

ProcessGroup new_group(const std::vector<int>& ranks) {
  const std::shared_ptr<ProcessGroupImpl> world = detail::default_group("new_group");
  const std::vector<int>& members = ranks.empty() ? world->ranks() : ranks;
  check_ranks(members, world->size());
  std::string name;
  {
    const std::scoped_lock lock(groups().mutex);
    name = fmt::format("group {}", groups().named++);
  }
  auto group = std::make_shared<ProcessGroupImpl>(*world, members, std::move(name),
                                                  world->communicator().split(members));
  const std::scoped_lock lock(groups().mutex);
  groups().others.push_back(group);
  return ProcessGroup(std::move(group));
}

}  // namespace tandem::comm
