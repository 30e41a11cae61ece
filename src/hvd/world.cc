#include "hvd/world.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "comm/exchange_bytes.h"
#include "comm/host_identity.h"
#include "comm/local/local_group.h"
#include "comm/process/group_name.h"
#include "comm/rendezvous/cluster_environment.h"
#include "core/available_cores.h"
#include "core/bytes.h"
#include "core/env.h"
#include "core/joined.h"
#include "core/log.h"
#include "core/parallel.h"
#include "core/status.h"
#include "core/threads.h"
#include "device/device_manager.h"
#include "group/connect.h"
#include "group/process_group_impl.h"
#include "tandem/comm.h"

namespace tandem::hvd {
namespace {

using Clock = std::chrono::steady_clock;

// After activity the background thread checks often for kActive; after that it sleeps for
// kIdleSleep.
constexpr auto kActive = std::chrono::milliseconds(100);
constexpr auto kIdleSleep = std::chrono::milliseconds(10);
constexpr auto kLeastPace = std::chrono::microseconds(200);
constexpr int kMostCycles = 8;  // the longest pause meanwhile, in cycle times

std::string wanted_backend(const InitOptions& options) {
  if (!options.backend.empty()) return options.backend;
  std::string wanted = env_string("HOROVOD_CPU_OPERATIONS").value_or("auto");
  std::transform(wanted.begin(), wanted.end(), wanted.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return wanted;
}

// A group has a backend, and finds failures, in its own way.
void check_alone(const InitOptions& options) {
  if (!options.backend.empty())
    fail<InvalidArgumentError>(
        "[hvd.init] expected no backend with a group, which has '{}'; got '{}'",
        options.group.backend(), options.backend);
  if (options.silence_limit)
    fail<InvalidArgumentError>("[hvd.init] expected no silence_limit with a group, got {} ms",
                               options.silence_limit->count());
}

constexpr const char* kEnded = "Horovod has been shut down. This rank called shutdown().";

std::shared_ptr<ProcessSetCoordinator> take_coordinator(ProcessSet::State& set) {
  const std::lock_guard lock(set.mutex);
  return std::exchange(set.coordinator, nullptr);
}

// Waits until a failed coordinator is idle, so that it can be destroyed. If a backend may still
// access its operations' memory, keeps the coordinator for good.
void release_when_idle(const std::shared_ptr<ProcessSetCoordinator>& coordinator) {
  static std::mutex mutex;
  static auto& kept = *new std::vector<std::shared_ptr<ProcessSetCoordinator>>;
  if (coordinator->wait_idle(std::chrono::seconds(1))) return;
  const std::lock_guard lock(mutex);
  kept.push_back(coordinator);  // and with it the memory of its operations
}

std::optional<int> env_rank(const char* name) {
  const auto value = env_int(name, 0, 1 << 20);
  return value ? std::optional<int>(static_cast<int>(*value)) : std::nullopt;
}

}  // namespace

World::World(const InitOptions& options) : options_(options), settings_(settings_of_environment()) {
  ClusterEnvironment environment = cluster_environment();
  if (const auto rank = env_rank("HOROVOD_RANK")) environment.rank = rank;
  if (const auto size = env_rank("HOROVOD_SIZE")) environment.size = size;
  const std::string wanted = wanted_backend(options);
  if (options.group.impl()) {
    check_alone(options);
    join(*options.group.impl());
  } else if (comm::is_initialized()) {
    join(*comm::detail::default_group("hvd.init"));
  } else if (environment.rank && environment.size) {
    if (!env_rank("HOROVOD_RANK") || !env_rank("HOROVOD_SIZE")) environment.require_one_launcher();
    job_ = rendezvous("env://", {.rank = environment.rank,
                                 .world_size = environment.size,
                                 .timeout = options.timeout,
                                 .token = {},
                                 .bind_address = "",
                                 .silence = options.silence_limit});
    owns_job_ = true;
    backend_ = choose_backend(*job_, {.backend = wanted, .time_limit = options.timeout});
    communicator_ =
        connect(*job_, host_memory(), {.backend = backend_, .time_limit = options.timeout});
  } else {
    backend_ = "local";
    communicator_ =
        std::make_shared<LocalGroup>(std::vector<DeviceImpl*>{&host_memory()})->communicator(0);
  }
  std::transform(backend_.begin(), backend_.end(), backend_.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  rank_ = communicator_->rank();
  size_ = communicator_->size();
  const std::vector<std::string> all = exchange_bytes(*communicator_, plain_bytes(settings_));
  settings_ = ByteReader("[hvd] the settings of rank 0", all.front()).number<Settings>();
  find_topology();
  share_cores();
  if (const auto file = env_string("HOROVOD_TIMELINE"); file && rank_ == 0)
    timeline_->start(*file, settings_.mark_cycles);
  std::vector<int> everyone(static_cast<std::size_t>(size_));
  for (int rank = 0; rank < size_; ++rank) everyone[static_cast<std::size_t>(rank)] = rank;
  global_ = add_set(everyone);
  for (const std::vector<int>& ranks : options.process_sets) add_set(ranks);
  thread_ = start_thread([this] { run(); });
}

void World::join(comm::ProcessGroupImpl& group) {
  group.require_use("hvd.init");
  job_ = group.job();
  backend_ = group.backend();
  communicator_ = group.duplicate(host_memory());
}

World::~World() { shut_down(std::chrono::milliseconds(0)); }

// Ranks with equal host names are on one host.
void World::find_topology() {
  const std::vector<std::string> all =
      exchange_bytes(*communicator_, env_string("HOROVOD_HOSTNAME").value_or(host_identity()));
  std::vector<int> local_rank(all.size()), host_of(all.size());
  std::vector<std::string> hosts;
  for (std::size_t r = 0; r < all.size(); ++r) {
    const auto found = std::find(hosts.begin(), hosts.end(), all[r]);
    host_of[r] = static_cast<int>(found - hosts.begin());
    local_rank[r] = static_cast<int>(
        std::count(host_of.begin(), host_of.begin() + static_cast<std::ptrdiff_t>(r), host_of[r]));
    if (found == hosts.end()) hosts.push_back(all[r]);
  }
  const auto me = static_cast<std::size_t>(rank_);
  topology_ = {.host = all[me],
               .local_rank = local_rank[me],
               .local_size = 0,
               .cross_rank = 0,
               .cross_size = 0};
  std::vector<int> of_host(hosts.size());
  for (std::size_t r = 0; r < all.size(); ++r) {
    ++of_host[static_cast<std::size_t>(host_of[r])];
    topology_.local_size += host_of[r] == host_of[me] ? 1 : 0;
    if (local_rank[r] != local_rank[me]) continue;
    ++topology_.cross_size;
    topology_.cross_rank += r < me ? 1 : 0;
  }
  topology_.homogeneous = std::all_of(of_host.begin(), of_host.end(),
                                      [&](int count) { return count == of_host.front(); });
}

// A launcher may let every rank use all cores of its host (mpirun with more ranks than it binds).
// Then each rank takes its share, since more threads than cores would wait for each other.
void World::share_cores() {
  auto& manager = DeviceManager::get();
  const int mine = available_cores(), online = static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
  int wanted = 0;
  for (const std::string& cores :
       exchange_bytes(*communicator_, fmt::format("{} {}", mine, topology_.host)))
    if (cores.substr(cores.find(' ') + 1) == topology_.host) wanted += std::atoi(cores.c_str());
  const int share = share_of_cores(online, topology_.local_rank, topology_.local_size);
  if (wanted <= online || mine <= share || manager.initialized() ||
      manager.intra_op_parallelism() != 0)
    return;
  manager.set_intra_op_parallelism(share);
}

std::shared_ptr<ProcessSetCoordinator> World::make_coordinator(int id,
                                                               const std::vector<int>& ranks) {
  std::unique_ptr<Communicator> communicator = communicator_->split(ranks);
  if (!communicator) return nullptr;
  return std::make_shared<ProcessSetCoordinator>(
      std::move(communicator),
      ProcessSetOptions{.id = id,
                        .ranks = ranks,
                        .backend = backend_,
                        .settings = settings_,
                        .time_limit = options_.timeout,
                        .wake = [bell = wakeup_] { bell->notify(); },
                        .report =
                            [job = job_](const std::string& reason) {
                              if (job) job->membership()->report(reason);
                            },
                        .autotune_log = env_string("HOROVOD_AUTOTUNE_LOG").value_or("")},
      timeline_);
}

std::shared_ptr<ProcessSet::State> World::add_set(const std::vector<int>& ranks) {
  process_.expect_this("hvd");
  // Digests, since the lists themselves would take memory quadratic in the number of ranks.
  const std::vector<std::string> digests =
      exchange_bytes(*communicator_, subgroup_name("", ranks, 0));
  const std::string named = joined(ranks, ", ");
  const auto other = std::find_if(digests.begin(), digests.end(),
                                  [&](const auto& digest) { return digest != digests[0]; });
  if (other != digests.end()) {
    constexpr std::size_t kMessageBytes = 200;
    const auto all = exchange_bytes(*communicator_, named.substr(0, kMessageBytes));
    const auto r = static_cast<std::size_t>(other - digests.begin());
    fail<InvalidArgumentError>(
        "[add_process_set] every rank must name the same ranks: rank 0 named [{}], rank {} [{}]",
        all[0], r, all[r]);
  }
  auto set = std::make_shared<ProcessSet::State>();
  set->ranks = ranks;
  std::sort(set->ranks.begin(), set->ranks.end());
  for (std::size_t i = 0; i < set->ranks.size(); ++i)
    if (set->ranks[i] < 0 || set->ranks[i] >= size_ ||
        (i > 0 && set->ranks[i] == set->ranks[i - 1]))
      fail<InvalidArgumentError>("[add_process_set] expected different ranks of 0 to {}, got [{}]",
                                 size_ - 1, named);
  if (ranks.empty())
    throw InvalidArgumentError("[add_process_set] expected at least one rank, got none");
  set->id = next_set_++;
  const auto place = std::find(set->ranks.begin(), set->ranks.end(), rank_);
  if (place != set->ranks.end()) set->rank = static_cast<int>(place - set->ranks.begin());
  set->coordinator = make_coordinator(set->id, set->ranks);
  if (set->coordinator) {
    const std::lock_guard lock(wakeup_->mutex);
    coordinators_[set->id] = set->coordinator;
  }
  return set;
}

bool World::remove_set(ProcessSet::State& set) {
  process_.expect_this("hvd");
  if (set.id == 0) return false;
  const std::vector<std::string> all = exchange_bytes(*communicator_, std::to_string(set.id));
  if (std::any_of(all.begin(), all.end(), [&](const std::string& id) { return id != all[0]; }))
    throw InvalidArgumentError("[remove_process_set] every rank must name the same set");
  const std::shared_ptr<ProcessSetCoordinator> coordinator = take_coordinator(set);
  if (!coordinator) return set.rank < 0;
  coordinator->abort(std::make_exception_ptr(
      InvalidArgumentError(fmt::format("[hvd] process set {} was removed", set.id))));
  release_when_idle(coordinator);
  const std::lock_guard lock(wakeup_->mutex);
  return coordinators_.erase(set.id) > 0;
}

// --- the background thread ---

void Wakeup::notify() {
  active.store(true);
  if (sleeping.load()) {
    const std::lock_guard lock(mutex);
    condition.notify_one();
  }
}

void World::run() {
  const ThreadBudget budget(1);
  Clock::time_point active_until = Clock::now();
  std::chrono::microseconds pace = kIdleSleep;
  std::unique_lock lock(wakeup_->mutex);
  std::vector<std::shared_ptr<ProcessSetCoordinator>> coordinators;
  while (!stopping_) {
    coordinators.clear();
    for (const auto& [id, coordinator] : coordinators_) coordinators.push_back(coordinator);
    const std::chrono::microseconds cycle =
        coordinators.empty() ? kIdleSleep : coordinators.front()->cycle_time();
    lock.unlock();
    bool busy = wakeup_->active.exchange(false), driven = false;
    for (const auto& coordinator : coordinators) {
      const ProcessSetCoordinator::TickResult result = coordinator->tick();
      busy = busy || result != ProcessSetCoordinator::TickResult::kIdle;
      driven = driven || result == ProcessSetCoordinator::TickResult::kDriven;
    }
    // While waiting threads run all cycles themselves, there is no need to check often.
    pace = driven ? cycle : std::min(2 * pace, kMostCycles * cycle);
    lock.lock();
    if (stopping_) return;
    const Clock::time_point now = Clock::now();
    if (busy) active_until = now + kActive;
    if (now < active_until) {
      wakeup_->condition.wait_for(lock, std::max(pace, kLeastPace), [&] { return stopping_; });
      continue;
    }
    wakeup_->sleeping.store(true);
    wakeup_->condition.wait_for(lock, kIdleSleep,
                                [&] { return stopping_ || wakeup_->active.load(); });
    wakeup_->sleeping.store(false);
    pace = cycle / 2;
  }
}

void World::shut_down(std::chrono::milliseconds limit) {
  if (ended_.exchange(true) || !global_) return;
  const std::shared_ptr<ProcessSetCoordinator> coordinator = take_coordinator(*global_);
  const bool failed_before = coordinator->failed();
  coordinator->shut_down(limit);
  {
    const std::lock_guard lock(wakeup_->mutex);
    stopping_ = true;
    wakeup_->condition.notify_all();
  }
  if (thread_.joinable()) thread_.join();
  const auto ended = std::make_exception_ptr(AbortedError(kEnded));
  for (const auto& [id, other] : coordinators_) {
    other->abort(ended);
    release_when_idle(other);
  }
  try {
    timeline_->stop();
  } catch (const Error& error) {
    logging::error("{}", error.what());
  }
  coordinators_.clear();
  communicator_.reset();
  if (job_ && owns_job_)
    job_->shut_down(failed_before ? std::chrono::seconds(1) : std::chrono::seconds(30));
  job_.reset();
}

// --- the World of this process ---

namespace {

struct Present {
  std::mutex mutex;
  std::shared_ptr<World> world;
};

Present& present() {
  static auto* present = new Present;
  return *present;
}

std::shared_ptr<World> exchange_world(std::shared_ptr<World> world) {
  const std::lock_guard lock(present().mutex);
  return std::exchange(present().world, std::move(world));
}

// The World that ends. A forked process keeps its parent's, whose threads and connections are not
// here, for good.
std::shared_ptr<World> take_world() {
  auto world = exchange_world(nullptr);
  if (world && !world->is_here()) new std::shared_ptr<World>(std::exchange(world, nullptr));
  return world;
}

void shut_down_at_exit() {
  try {
    if (const auto world = take_world()) world->shut_down(std::chrono::seconds(2));
  } catch (const std::exception& error) {
    logging::error("[hvd] {}", error.what());
  }
}

}  // namespace

std::shared_ptr<World> world() {
  const std::lock_guard lock(present().mutex);
  if (!present().world)
    throw FailedPreconditionError("Horovod has not been initialized; use hvd.init().");
  return present().world;
}

std::shared_ptr<ProcessSetCoordinator> coordinator_of(const ProcessSet& set) {
  const auto here = world();
  ProcessSet::State& state = set.state() ? *set.state() : *here->global_set();
  {
    const std::lock_guard lock(state.mutex);
    if (state.coordinator) return state.coordinator;
  }
  if (here->ended()) throw AbortedError(kEnded);
  fail<InvalidArgumentError>(
      "[hvd] rank {} is not in process set {} (ranks [{}]), or the set was removed", here->rank(),
      state.id, joined(state.ranks, ", "));
}

void init(const InitOptions& options) {
  if (is_initialized()) {
    if (options.group.impl() && options.group.impl() != world()->group().impl())
      throw FailedPreconditionError(
          "[hvd.init] Horovod has been initialized without this group; call shutdown() first");
    return;
  }
  auto made = std::make_shared<World>(options);
  static const int registered = std::atexit(shut_down_at_exit);
  static_cast<void>(registered);
  exchange_world(std::move(made));
}

void shutdown() {
  if (const auto world = take_world()) world->shut_down(std::chrono::seconds(10));
}

bool is_initialized() {
  const std::lock_guard lock(present().mutex);
  return present().world != nullptr;
}

int rank() { return world()->rank(); }
int size() { return world()->size(); }
int local_rank() { return world()->topology().local_rank; }
int local_size() { return world()->topology().local_size; }
int cross_rank() { return world()->topology().cross_rank; }
int cross_size() { return world()->topology().cross_size; }
bool is_homogeneous() { return world()->topology().homogeneous; }

ProcessSet add_process_set(const std::vector<int>& ranks) {
  return ProcessSet(world()->add_set(ranks));
}
bool remove_process_set(const ProcessSet& set) {
  return set.state() && world()->remove_set(*set.state());
}
ProcessSet global_process_set() { return ProcessSet(world()->global_set()); }

namespace {
std::shared_ptr<ProcessSet::State> state_of(const ProcessSet& set) {
  return set.state() ? set.state() : world()->global_set();
}
}  // namespace

int ProcessSet::id() const { return state_of(*this)->id; }
std::vector<int> ProcessSet::ranks() const { return state_of(*this)->ranks; }
int ProcessSet::size() const { return static_cast<int>(state_of(*this)->ranks.size()); }
int ProcessSet::rank() const { return state_of(*this)->rank; }

void start_timeline(const std::string& file, const TimelineOptions& options) {
  if (const auto here = world(); here->rank() == 0)
    here->timeline().start(file, options.mark_cycles || here->marks_cycles());
}
void stop_timeline() { world()->timeline().stop(); }

}  // namespace tandem::hvd
