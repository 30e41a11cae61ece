#include "group/connect.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "comm/gloo/gloo_backend.h"
#include "comm/hierarchical/hierarchical_communicator.h"
#include "comm/host_identity.h"
#include "comm/mpi/mpi_backend.h"
#include "comm/nccl/nccl_backend.h"
#include "comm/process/process_communicator.h"
#include "comm/shm/shm_backend.h"
#include "comm/signature.h"
#include "core/env.h"
#include "core/log.h"
#include "core/status.h"
#include "device/native_gpu.h"

namespace tandem {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::array<std::string_view, 6> kBackends = {"auto", "shm",          "gloo",
                                                       "mpi",  "hierarchical", "nccl"};

// What a rank tells of itself, for all to make the same choice.
struct Seat {
  std::string host;
  bool mpi = false;
  std::size_t shared_memory = 0;  // bytes that are free in /dev/shm
};

// Groups of a job (the world, duplicates of it, groups of some ranks) for which "auto" wants room
// in /dev/shm.
constexpr std::size_t kGroupsInSharedMemory = 8;

// The same for all ranks, and for no other call: how often this rank has called for `what`.
std::string numbered(Job& job, const std::string& what) {
  const std::string counter = fmt::format("connect/{}/calls of {}", what, job.rank());
  return fmt::format("{} {}", what, job.store()->add(counter, 1) - 1);
}

std::vector<Seat> exchange_seats(Job& job, std::chrono::milliseconds limit) {
  const Clock::time_point deadline = Clock::now() + limit;
  const std::string round = numbered(job, "seats");
  const auto key = [&](int rank) { return fmt::format("connect/{}/{}", round, rank); };
  const bool mpi = (env_string("OMPI_COMM_WORLD_SIZE") || env_string("PMI_SIZE")) && has_mpi();
  job.store()->set(key(job.rank()),
                   fmt::format("{}{} {}", mpi ? "m" : "-", shm_free_bytes(), host_identity()));
  std::vector<Seat> seats;
  std::vector<int> missing;
  for (int rank = 0; rank < job.size(); ++rank) {
    try {
      const std::string text = job.store()->get(key(rank), deadline);
      const std::size_t blank = text.find(' ');
      seats.push_back(
          {text.substr(blank + 1), text.front() == 'm', std::stoull(text.substr(1, blank - 1))});
    } catch (const DeadlineExceededError&) {
      missing.push_back(rank);
    }
  }
  if (!missing.empty())
    fail<DeadlineExceededError>("[connect] {} did not come to choose a backend within {} ms",
                                list_ranks(missing), limit.count());
  // The last to have read them removes them.
  const std::string readers = fmt::format("connect/{}/readers", round);
  if (job.store()->add(readers, 1) == job.size()) {
    for (int rank = 0; rank < job.size(); ++rank) job.store()->remove(key(rank));
    job.store()->remove(readers);
  }
  return seats;
}

std::unique_ptr<Backend> make_backend(const std::string& backend, Job& job,
                                      std::chrono::milliseconds limit) {
  if (backend == "mpi")
    return make_mpi_backend({.rank = job.rank(),
                             .size = job.size(),
                             .time_limit = limit,
                             .membership = job.membership()});
  const std::string name = numbered(job, "world");
  if (backend == "shm")
    return make_shm_backend({.store = job.store(),
                             .name = name,
                             .rank = job.rank(),
                             .size = job.size(),
                             .time_limit = limit,
                             .membership = job.membership()});
  TANDEM_ASSERT(backend == "gloo");
  return make_gloo_backend({.store = job.store(),
                            .name = name,
                            .rank = job.rank(),
                            .size = job.size(),
                            .interface = "",
                            .address = "",
                            .master = job.master(),
                            .time_limit = limit,
                            .membership = job.membership()});
}

std::string between_hosts(const std::vector<Seat>& seats) {
  const bool mpi =
      std::all_of(seats.begin(), seats.end(), [](const Seat& seat) { return seat.mpi; });
  return mpi ? "mpi" : "gloo";
}

// The ranks of each host; hosts in the order of their first ranks.
std::vector<std::vector<int>> ranks_by_host(const std::vector<Seat>& seats) {
  std::vector<std::vector<int>> hosts;
  for (int rank = 0; rank < static_cast<int>(seats.size()); ++rank) {
    const auto host = std::find_if(hosts.begin(), hosts.end(), [&](const auto& ranks) {
      return seats[static_cast<std::size_t>(ranks.front())].host ==
             seats[static_cast<std::size_t>(rank)].host;
    });
    if (host == hosts.end())
      hosts.push_back({rank});
    else
      host->push_back(rank);
  }
  return hosts;
}

// Whether hosts with several ranks have room for their groups in shared memory; warns where one has
// not, the same on every rank.
bool shared_memory_suffices(Job& job, const std::vector<Seat>& seats) {
  for (const std::vector<int>& ranks : ranks_by_host(seats)) {
    if (ranks.size() == 1 && seats.size() > 1) continue;
    const Seat& seat = seats[static_cast<std::size_t>(ranks.front())];
    const std::size_t wanted =
        kGroupsInSharedMemory * shm_group_bytes(static_cast<int>(ranks.size()));
    if (seat.shared_memory >= wanted) continue;
    if (job.rank() == 0)
      logging::warn(
          "[connect] the backend is {}, not shared memory: {} MiB are free in /dev/shm on the host "
          "of {}, and groups of {} ranks want {} MiB. Make it larger (docker run --shm-size=1g), "
          "or "
          "choose the backend yourself",
          between_hosts(seats), seat.shared_memory >> 20, list_ranks(ranks), ranks.size(),
          wanted >> 20);
    return false;
  }
  return true;
}

std::unique_ptr<Communicator> connect_through(std::unique_ptr<Backend> backend, Job& job,
                                              Device& device, std::chrono::milliseconds limit) {
  return make_process_communicator(std::move(backend), device,
                                   {.time_limit = limit, .membership = job.membership()});
}

// Shared memory inside the hosts, a network between their first ranks.
std::unique_ptr<Communicator> connect_hosts(Job& job, Device& device,
                                            std::chrono::milliseconds limit) {
  const std::vector<Seat> seats = exchange_seats(job, limit);
  const auto hosts = ranks_by_host(seats);
  auto all = connect_through(make_backend(between_hosts(seats), job, limit), job, device, limit);
  if (hosts.size() == seats.size()) return all;
  std::vector<int> first, ranks;
  std::size_t mine = 0;
  for (std::size_t host = 0; host < hosts.size(); ++host) {
    first.push_back(hosts[host].front());
    ranks.insert(ranks.end(), hosts[host].begin(), hosts[host].end());
    if (seats[static_cast<std::size_t>(hosts[host].front())].host ==
        seats[static_cast<std::size_t>(job.rank())].host)
      mine = host;
  }
  const std::vector<int>& here = hosts[mine];
  const auto place = std::find(here.begin(), here.end(), job.rank()) - here.begin();
  auto inner =
      connect_through(make_shm_backend({.store = job.store(),
                                        .name = numbered(job, fmt::format("host {}", mine)),
                                        .rank = static_cast<int>(place),
                                        .size = static_cast<int>(here.size()),
                                        .names = RankNames(here),
                                        .time_limit = limit,
                                        .membership = job.membership()}),
                      job, device, limit);
  auto outer = all->split(first);
  return make_hierarchical_communicator(std::move(inner), std::move(outer),
                                        {.time_limit = limit,
                                         .ranks = std::move(ranks),
                                         .names = RankNames(),
                                         .direct = std::move(all)});
}

// The n-th rank of a host has its n-th GPU, unless `device` is one.
std::unique_ptr<Communicator> connect_gpus(Job& job, Device& device,
                                           std::chrono::milliseconds limit) {
  NcclOptions options{.store = job.store(),
                      .name = numbered(job, "world"),
                      .rank = job.rank(),
                      .size = job.size(),
                      .device = &device,
                      .gpu = 0,
                      .time_limit = limit,
                      .membership = job.membership()};
  if (const NativeGpu* gpu = as_native(device))
    options.gpu = gpu->ordinal();
  else
    for (const std::vector<int>& ranks : ranks_by_host(exchange_seats(job, limit)))
      if (const auto found = std::find(ranks.begin(), ranks.end(), job.rank());
          found != ranks.end())
        options.gpu = static_cast<int>(found - ranks.begin());
  return connect_through(make_nccl_backend(std::move(options)), job, device, limit);
}

}  // namespace

void check_backend(const std::string& name) {
  if (std::find(kBackends.begin(), kBackends.end(), name) == kBackends.end())
    fail<InvalidArgumentError>("[connect] Invalid backend: '{}'; expected one of {}", name,
                               fmt::join(kBackends, ", "));
}

std::string choose_backend(Job& job, const ConnectOptions& options) {
  check_backend(options.backend);
  if (options.backend != "auto") return options.backend;
  const std::vector<Seat> seats = exchange_seats(job, options.time_limit);
  const std::size_t hosts = ranks_by_host(seats).size();
  if ((hosts > 1 && hosts == seats.size()) || !shared_memory_suffices(job, seats))
    return between_hosts(seats);
  return hosts == 1 ? "shm" : "hierarchical";
}

std::unique_ptr<Communicator> connect(Job& job, Device& device, const ConnectOptions& options) {
  const std::string backend = choose_backend(job, options);
  if (backend == "nccl") return connect_gpus(job, device, options.time_limit);
  if (backend == "hierarchical") return connect_hosts(job, device, options.time_limit);
  return connect_through(make_backend(backend, job, options.time_limit), job, device,
                         options.time_limit);
}

}  // namespace tandem
